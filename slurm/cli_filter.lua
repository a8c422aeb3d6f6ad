-- Shows advice at submission, on the user's own machine: on standard error, before the job is sent, and never in its way.
-- It asks no daemon and opens no file but sadvise_site.lua, looks at a bounded piece of each option, and no error
-- leaves it. Users switch it off with SADVISE_ADVICE=off; it also keeps quiet with --quiet, --parsable and for steps.

local VALUE_LENGTH = 128
-- Slurm 22.05 prints a time limit that was not given as millions of days.
local MOST_DAYS = 100000

local function site_table()
  local folder = string.match(debug.getinfo(1, "S").source, "^@(.*/)") or "/etc/slurm/"
  local reader = loadfile(folder .. "sadvise_site.lua") or loadfile("/etc/slurm/sadvise_site.lua")
  local ran, found = pcall(reader or function() return {} end)
  return ran and type(found) == "table" and found or {}
end

local SITE = site_table()

local function say(text)
  slurm.log_info("%s", "sadvise: " .. text)
end

local function wants(topic)
  return type(SITE.advice) ~= "table" or SITE.advice[topic] ~= false
end

-- The value of an option, bounded; nil where the user gave none.
local function given(options, name)
  local value = options[name]
  if type(value) ~= "string" or value == "" or value == "unset" or value == "invalid-context" then
    return nil
  end
  return string.sub(value, 1, VALUE_LENGTH)
end

-- The count in "4", "a100:4" or "gpu:a100:4,shard:2"; nil where no GPU is asked for.
local function gpu_count(text, names_gpu)
  if not text then
    return nil
  end
  local part = text
  if names_gpu then
    part = string.match("," .. text, "[,/:]gpu([^,]*)")
    if not part then
      return nil
    end
    if part == "" then
      return 1
    end
  end
  local count = tonumber(string.match(part, "(%d+)$"))
  if not count and string.find(part, "[:=]") then
    return 1
  end
  return count
end

local function node_count(options)
  local count = tonumber(string.match(given(options, "nodes") or "", "^(%d+)")) or 1
  return math.max(count, 1)
end

-- How many GPUs a job asks for in all, and on how many nodes it insists.
local function request(options)
  local nodes = node_count(options)
  local on_each = gpu_count(given(options, "gpus-per-node")) or gpu_count(given(options, "gres"), true)
  if on_each then
    return nodes * on_each, nodes
  end
  local on_each_task = gpu_count(given(options, "gpus-per-task"))
  if on_each_task then
    return on_each_task * (tonumber(given(options, "ntasks")) or 1), nodes
  end
  return gpu_count(given(options, "gpus")), nodes
end

local function has_time_limit(options)
  local limit = given(options, "time")
  return limit ~= nil and (tonumber(string.match(limit, "^(%d+)%-")) or 0) < MOST_DAYS
end

local function gpus_in_node(options)
  local known = type(SITE.gpus_per_node) == "table" and SITE.gpus_per_node or {}
  local count = known[given(options, "partition") or "default"] or known.default
  return type(count) == "number" and count >= 1 and count or nil
end

local function advise_on_spread(options, gpus, nodes)
  local room = gpus_in_node(options)
  local enough = room and math.ceil(gpus / room)
  if enough and nodes > enough then
    say(string.format(
      "%d GPUs on %d nodes: nodes here have %d, so --nodes=%d --gpus-per-node=%d keeps them closer together",
      gpus, nodes, room, enough, math.ceil(gpus / enough)))
  end
end

local function has_hints(options)
  local comment = options.comment
  local variable = type(SITE.variable) == "string" and SITE.variable or "SADVISE_HINTS"
  return (type(comment) == "string" and string.find(string.lower(comment), "sadvise:", 1, true) ~= nil)
    or os.getenv(variable) ~= nil
end

local function keeps_quiet(options)
  local switch = string.lower(os.getenv("SADVISE_ADVICE") or "")
  return switch == "off" or switch == "0" or switch == "no"
    or (given(options, "quiet") or "0") ~= "0"
    or given(options, "parsable") ~= nil
    -- A step of a job that runs already.
    or (options.type == "srun" and os.getenv("SLURM_JOB_ID") ~= nil)
end

local function advise(options)
  if keeps_quiet(options) then
    return
  end
  local gpus, nodes = request(options)
  if not gpus or gpus < 1 then
    return
  end
  if wants("time_limit") and not has_time_limit(options) then
    say("no --time: with a limit close to what it needs a job fits into more holes, and starts earlier")
  end
  if wants("spread") and nodes > 1 then
    advise_on_spread(options, gpus, nodes)
  end
  if wants("hints") and gpus > 1 and not has_hints(options) then
    say("can it train on more or fewer GPUs? Say so: --comment=\"sadvise: gpus=2-8\"")
  end
end

function slurm_cli_setup_defaults(_options, _early_pass)
  return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, _offset)
  local went_well, fault = pcall(advise, options)
  if not went_well then
    pcall(slurm.log_debug, "%s", "sadvise: no advice: " .. tostring(fault))
  end
  return slurm.SUCCESS
end

function slurm_cli_post_submit(_offset, _job_id, _step_id)
  return slurm.SUCCESS
end

return slurm.SUCCESS
