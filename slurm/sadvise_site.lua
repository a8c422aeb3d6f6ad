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

  -- true puts the nice of a job that sadvise lifted back at once when its user changes what the job asks for, in place
  -- of in the next round of sadvised. A shorter time limit keeps the nice.
  hold_requests = false,

  -- GPUs in a node, by partition; for what cli_filter.lua says of jobs spread over more nodes than they need.
  gpus_per_node = {
    -- default = 8,
    -- debug = 4,
  },

  -- What cli_filter.lua speaks of.
  advice = { time_limit = true, spread = true, hints = true },
}
