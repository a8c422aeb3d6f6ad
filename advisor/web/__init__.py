"""The web view: pages for people and a JSON API, read only unless the site allows actions (decision record 0041)."""
