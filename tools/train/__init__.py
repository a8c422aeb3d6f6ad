"""Programs that train policies and export them."""
