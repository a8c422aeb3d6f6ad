"""The workload of Dally, its timers fixed or watched, and how they follow a step."""
