-- What job_submit.lua and cli_filter.lua know of this site; both look for this file beside themselves, then in
-- /etc/slurm. slurmctld reads it again when job_submit.lua has changed: after an edit, `touch job_submit.lua`.
-- An entry that is not understood is left out and named in slurmctld.log; a file that is not Lua counts as empty.
return {
  -- The variable in which a user may give hints without a comment: export SADVISE_HINTS="model=bert gpus=2-8".
  -- Slurm hands over the environment of batch jobs only. "" reads none.
  variable = "SADVISE_HINTS",

  -- Variables that users of this site set anyway, and the hint that each of them is.
  variables = {
    -- model = "MODEL_NAME",
    -- gpus = "ELASTIC_GPUS",
  },

  -- What jobs of a kind have in common. The first rule of which everything holds gives its hints; a variable of the
  -- user's wins over them. `name` is how the job's name begins, `account` and `partition` are whole names,
  -- `requeue = true` asks that the user gave --requeue.
  rules = {
    -- { name = "bert-", hints = "model=bert sensitivity=high" },
    -- { account = "vision", partition = "gpu", requeue = true, hints = "gpus=2-8" },
  },

  -- A job with a comment of its own is left alone; true adds "; sadvise: ..." behind what the user wrote.
  extend_comments = false,

  -- The file that sadvised writes with daemon.submit_table: jobs that should start next get their nice at submission.
  -- "" gives none. sadvise_lift.lua has to stand beside job_submit.lua.
  submit_table = "",

  -- Partitions whose batch jobs are notebooks, as JupyterHub submits them: they count as interactive jobs for
  -- guard.interactive_ratio, as those of salloc and srun do everywhere.
  notebooks = {},

  -- true puts the nice of a job that sadvise lifted back at once when its user changes what the job asks for, in place
  -- of in the next round of sadvised. A shorter time limit keeps the nice.
  hold_requests = false,

  -- true holds a gang that leaves its node count open (--gpus without --nodes) to the fewest nodes from its submission
  -- on, so that Slurm does not spread it over what is free. It needs gpus_per_node of the partition. A user who wants
  -- more nodes says so, as with --nodes=1-8, or with `sadvise: sensitivity=low` in the comment.
  pin_gangs = false,

  -- GPUs that most nodes of a partition have, for pin_gangs, and for what cli_filter.lua says of jobs spread over more
  -- nodes than they need. For pin_gangs, a type of which nodes have fewer gets a line of its own.
  gpus_per_node = {
    -- default = 8,
    -- debug = 4,
    -- ["debug/v100"] = 2,
  },

  -- CPUs in a node of a partition, for pin_gangs; one for each GPU where it does not stand here.
  cpus_per_node = {
    -- debug = 64,
  },

  -- What cli_filter.lua speaks of.
  advice = { time_limit = true, spread = true, hints = true },
}
