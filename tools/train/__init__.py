"""Programs that train and judge learned policies; never installed."""
