"""Sites that differ in GPU types, network and models, and the policy that learns to place gangs on any of them."""
