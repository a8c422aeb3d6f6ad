"""An hour of a live cluster under arrivals, with the rules or a policy that places gangs."""
