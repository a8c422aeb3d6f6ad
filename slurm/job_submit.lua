-- Turns the habits of a site into hints for sadvise, which reads them in the comment of a job:
-- "sadvise: model=bert gpus=2-8". What the habits are stands in sadvise_site.lua. Where the site wants it, gangs that
-- leave their node count open are held to the fewest nodes.
--
-- slurmctld runs this for every submission, under its locks. So it starts no program, opens no file but the submit table
-- where the site names one, looks at a bounded piece of whatever a user wrote, and no error leaves it: Slurm 26.05
-- refuses a job whose script fails.

local MOST_RULES = 64
local MOST_WORDS = 8
local TEXT_LENGTH = 256
local COMMENT_LENGTH = 4096
local WORD_LENGTH = 60
-- What the decoder of sadvise takes apart; nothing else of an environment can get into a comment.
local WORD = "^[%a_]+=[%w._+-]+$"
local VALUE = "^[%w._+-]+$"
local GPU_FIELDS = { "tres_per_job", "tres_per_node", "tres_per_task", "tres_per_socket" }
-- An update that sets one of these can make a job larger.
local SIZE_FIELDS = {
  "account", "cpus_per_task", "cpus_per_tres", "max_cpus", "max_nodes", "mem_per_tres", "min_cpus", "min_nodes",
  "num_tasks", "ntasks_per_node", "ntasks_per_tres", "partition", "pn_min_cpus", "pn_min_memory", "shared",
  "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task",
}
-- A gang that sets one of these does not leave its node count open, or asks for something of each node.
local NODE_FIELDS = {
  "cores_per_socket", "cpus_per_tres", "exc_nodes", "features", "max_nodes", "mem_per_tres", "min_nodes",
  "ntasks_per_node", "ntasks_per_socket", "ntasks_per_tres", "req_nodes", "reservation", "shared", "sockets_per_node",
  "threads_per_core", "tres_per_node", "tres_per_socket",
}
-- What Slurm has for no value, in numbers of 8, 16, 32 and 64 bits.
local NO_VALUES = { [254] = true, [65534] = true, [4294967294] = true, [2 ^ 64] = true }
local NICE_OFFSET = 2147483648
-- Every nice of sadvise is this, in whole steps of the span.
local MARK, MARK_SPAN = 7, 10
local HINTS = { "model", "gpus", "ckpt", "sensitivity" }

local function log(text)
  pcall(slurm.log_info, "%s", "sadvise: " .. text)
end

-- Load a file from beside this one, or from /etc/slurm.
local function load_beside(name)
  local folder = string.match(debug.getinfo(1, "S").source, "^@(.*/)") or "/etc/slurm/"
  local reader = loadfile(folder .. name)
  if reader then
    return reader
  end
  return loadfile("/etc/slurm/" .. name)
end

-- Read the site's table; faults in it are logged once, here.
local function site_table()
  local reader, fault = load_beside("sadvise_site.lua")
  if not reader then
    log("no site table is in use: " .. tostring(fault))
    return {}
  end
  local ran, found = pcall(reader)
  if not ran or type(found) ~= "table" then
    log("no site table is in use: sadvise_site.lua does not return one: " .. tostring(found))
    return {}
  end
  return found
end

local function text_or_nil(value)
  return type(value) == "string" and value ~= "" and value or nil
end

-- Append the well-formed words of a text to a list.
local function add_words(words, text)
  for word in string.gmatch(string.sub(text, 1, TEXT_LENGTH), "[^%s,]+") do
    if #words >= MOST_WORDS then
      return
    end
    if #word <= WORD_LENGTH and (word == "off" or string.find(word, WORD)) then
      words[#words + 1] = word
    end
  end
end

local function read_rules(written)
  local rules = {}
  for place, rule in ipairs(type(written) == "table" and written or {}) do
    if place > MOST_RULES then
      log("rules behind number " .. MOST_RULES .. " are left out")
      break
    end
    local words = {}
    if type(rule) == "table" and text_or_nil(rule.hints) then
      add_words(words, rule.hints)
    end
    if #words > 0 then
      rules[#rules + 1] = {
        name = text_or_nil(rule.name),
        account = text_or_nil(rule.account),
        partition = text_or_nil(rule.partition),
        requeue = rule.requeue == true,
        words = words,
      }
    else
      log("rule " .. place .. " is left out: it needs hints such as \"model=bert gpus=2-8\"")
    end
  end
  return rules
end

-- The whole numbers of at least 1 in a table of the site.
local function read_numbers(written)
  local numbers = {}
  for key, value in pairs(type(written) == "table" and written or {}) do
    if type(value) == "number" and value >= 1 then
      numbers[key] = math.floor(value)
    else
      log("the number of " .. tostring(key) .. " is left out: it has to be at least 1")
    end
  end
  return numbers
end

-- Check the site's table once, so that nothing of it can fail later.
local function read_site()
  local written = site_table()
  local site = { variable = text_or_nil(written.variable), variables = {}, extend = written.extend_comments == true }
  local variables = type(written.variables) == "table" and written.variables or {}
  for _, hint in ipairs(HINTS) do
    if text_or_nil(variables[hint]) then
      site.variables[#site.variables + 1] = { hint = hint, name = variables[hint] }
    end
  end
  site.rules = read_rules(written.rules)
  site.submit_table = text_or_nil(written.submit_table)
  site.notebooks = {}
  for _, name in ipairs(type(written.notebooks) == "table" and written.notebooks or {}) do
    site.notebooks[tostring(name)] = true
  end
  site.holds_requests = written.hold_requests == true
  site.pins_gangs = written.pin_gangs == true
  site.gpus_per_node = read_numbers(written.gpus_per_node)
  site.cpus_per_node = read_numbers(written.cpus_per_node)
  site.asks_environment = site.variable ~= nil or #site.variables > 0
  return site
end

local loaded, SITE = pcall(read_site)
if not loaded then
  log("no site table is in use: " .. tostring(SITE))
  SITE = { variables = {}, rules = {}, extend = false, asks_environment = false, holds_requests = false, pins_gangs = false }
end

local function wants_gpus(job)
  for _, field in ipairs(GPU_FIELDS) do
    local asked = job[field]
    if type(asked) == "string" and string.find(asked, "gpu", 1, true) then
      return true
    end
  end
  return false
end

local function rule_holds(rule, job, name)
  return (not rule.name or string.sub(name, 1, #rule.name) == rule.name)
    and (not rule.account or (job.account or job.default_account) == rule.account)
    and (not rule.partition or job.partition == rule.partition)
    and (not rule.requeue or job.requeue == 1)
end

-- Append what the job's environment says; of interactive jobs Slurm has none, and logs each try to look.
local function add_environment(words, job)
  if not SITE.asks_environment or not job.script then
    return
  end
  for _, each in ipairs(SITE.variables) do
    local value = text_or_nil(job.environment[each.name])
    if value and #value <= WORD_LENGTH and string.find(value, VALUE) then
      add_words(words, each.hint .. "=" .. value)
    end
  end
  local hints = SITE.variable and text_or_nil(job.environment[SITE.variable])
  if hints then
    add_words(words, hints)
  end
end

-- Whether the comment is ours to add to: else the user has spoken.
local function can_be_added_to(comment)
  return comment == "" or (SITE.extend and #comment <= COMMENT_LENGTH)
end

local function hint(job)
  local comment = job.comment or ""
  if not can_be_added_to(comment) then
    return
  end
  if string.find(string.lower(comment), "sadvise:", 1, true) or not wants_gpus(job) then
    return
  end
  -- sadvise lets the last of two words on one thing count, so the user's come last.
  local words = {}
  local name = type(job.name) == "string" and job.name or ""
  for _, rule in ipairs(SITE.rules) do
    if rule_holds(rule, job, name) then
      for _, word in ipairs(rule.words) do
        words[#words + 1] = word
      end
      break
    end
  end
  local own = {}
  add_environment(own, job)
  for _, word in ipairs(own) do
    words[#words + 1] = word
  end
  if #words > 0 then
    job.comment = (comment ~= "" and comment .. "; " or "") .. "sadvise: " .. table.concat(words, " ")
  end
end

-- Return the function that gives jobs their first nice; one that does nothing where the site names no submit table.
local function lifter()
  if not SITE.submit_table then
    return function() end
  end
  local reader, fault = load_beside("sadvise_lift.lua")
  if not reader then
    error(fault, 0)
  end
  return reader()(SITE.submit_table, log, SITE.notebooks)
end

local lifts, lift = pcall(lifter)
if not lifts then
  log("no job gets a nice: " .. tostring(lift))
  lift = function() end
end

local function is_given(value)
  return type(value) == "number" and not NO_VALUES[value] or text_or_nil(value) ~= nil
end

-- The name of the one partition that a job is for; nil where it names several, or none and the site has no default.
local function partition_of(job, partitions)
  local name = text_or_nil(job.partition)
  if name then
    return not string.find(name, ",", 1, true) and name or nil
  end
  for each, partition in pairs(partitions or {}) do
    if partition.flag_default == 1 then
      return each
    end
  end
  return nil
end

-- The GPUs in one entry such as "gres/gpu:a100:8" or "gres:gpu", and their type; nil for anything else.
local function gpus_of(entry)
  local rest = string.match(entry, "^gres[:/]gpu(.*)$")
  if not rest then
    return nil
  end
  local count = string.match(rest, "^[:=](%d+)$")
  if count or rest == "" then
    return tonumber(count or 1)
  end
  local kind, number = string.match(rest, "^:(%a[%w_.-]*)[:=](%d+)$")
  return tonumber(number), kind
end

-- The GPUs in a request of one entry of GPUs, beside which it may name CPUs alone, and their type; nil for others.
local function only_gpus(request)
  local gpus, kind
  for entry in string.gmatch(string.sub(request, 1, TEXT_LENGTH), "[^,]+") do
    if not string.find(entry, "^cpu[:=]%d+$") then
      if gpus then
        return nil
      end
      gpus, kind = gpus_of(entry)
      if not gpus then
        return nil
      end
    end
  end
  return gpus, kind
end

-- The GPUs that a gang asks for in all, and of each of its tasks, 0 where it counts none by task; nil for a job that
-- does not leave its node count open, or asks for something of each node that is not looked at here.
local function open_gang(job)
  for _, field in ipairs(NODE_FIELDS) do
    if is_given(job[field]) then
      return nil
    end
  end
  local each_cpus, least = job.cpus_per_task, job.pn_min_cpus
  local memory = job.pn_min_memory
  if (is_given(least) and least ~= each_cpus) or job.contiguous == 1 then
    return nil
  end
  -- Memory of each node, not of each CPU, or none.
  if type(memory) == "number" and memory >= 2 ^ 63 and memory < 2 ^ 64 then
    return nil
  end
  local of_task, of_job = text_or_nil(job.tres_per_task), text_or_nil(job.tres_per_job)
  local each, kind = 0, nil
  if of_task and string.find(of_task, "gpu", 1, true) then
    each, kind = only_gpus(of_task)
    local tasks = job.num_tasks
    if of_job or not each or not is_given(tasks) then
      return nil
    end
    return each * tasks, each, kind
  end
  if not of_job then
    return nil
  end
  local gpus
  gpus, kind = only_gpus(of_job)
  return gpus, 0, kind
end

-- Hold a gang that leaves its node count open to the fewest nodes that take its GPUs and its tasks. By the word in its
-- comment sadvised knows it again, and gives its request back before it waits for too long: a comment of the user that
-- cannot get the word leaves the gang as it is.
local function pin(job, partitions, marks)
  local comment = job.comment or ""
  if not SITE.pins_gangs or not marks or string.find(string.lower(comment), "sensitivity=low", 1, true) then
    return
  end
  local gpus, each, kind = open_gang(job)
  if not gpus or gpus < 2 then
    return
  end
  local partition = partition_of(job, partitions)
  local known = SITE.gpus_per_node
  local on_node = partition and (kind and known[partition .. "/" .. kind] or known[partition] or known.default)
  if not on_node then
    return
  end
  local tasks = is_given(job.num_tasks) and job.num_tasks or 1
  local cpus = is_given(job.cpus_per_task) and job.cpus_per_task or 1
  -- A node that is not described has a CPU for each GPU.
  local cpus_on_node = SITE.cpus_per_node[partition] or SITE.cpus_per_node.default or on_node
  local tasks_on_node = math.floor(cpus_on_node / cpus)
  if each > 0 then
    tasks_on_node = math.min(tasks_on_node, math.floor(on_node / each))
  end
  if tasks_on_node < 1 then
    return
  end
  job.max_nodes = math.max(math.ceil(gpus / on_node), math.ceil(tasks / tasks_on_node))
  local word = string.format("pinned=%d", job.max_nodes)
  local ours, rest = string.match(comment, "^(.-%f[%w_-][sS][aA][dD][vV][iI][sS][eE]:[^;]*)(.*)$")
  if ours then
    job.comment = ours .. " " .. word .. rest
  else
    job.comment = (comment ~= "" and comment .. "; " or "") .. "sadvise: " .. word
  end
end

function slurm_job_submit(job_desc, partitions, _uid)
  local marks = can_be_added_to(job_desc.comment or "")
  local went_well, fault = pcall(hint, job_desc)
  if not went_well then
    log("a job goes without hints: " .. tostring(fault))
  end
  went_well, fault = pcall(lift, job_desc)
  if not went_well then
    log("a job goes without a nice: " .. tostring(fault))
  end
  went_well, fault = pcall(pin, job_desc, partitions, marks)
  if not went_well then
    log("a gang can be spread: " .. tostring(fault))
  end
  return slurm.SUCCESS
end

-- Whether an update can make a job larger: it sets a field of its size, other than to a shorter time limit.
local function can_grow(asked, job)
  for _, field in ipairs(SIZE_FIELDS) do
    if is_given(asked[field]) then
      return true
    end
  end
  local minutes = asked.time_limit
  return is_given(minutes) and not (type(job.time_limit) == "number" and minutes <= job.time_limit)
end

-- Put the nice of a lifted job back as its user changes what it asks for.
local function hold_to_request(asked, job, uid)
  if not SITE.holds_requests or uid ~= job.user_id then
    return
  end
  local nice = type(job.nice) == "number" and job.nice - NICE_OFFSET or 0
  if nice < 0 and -nice % MARK_SPAN == MARK and can_grow(asked, job) then
    asked.nice = NICE_OFFSET
  end
end

-- Every scontrol update passes through this function, also those of sadvise, which are not of the job's user.
function slurm_job_modify(job_desc, job, _partitions, uid)
  local went_well, fault = pcall(hold_to_request, job_desc, job, uid)
  if not went_well then
    log("a changed job keeps its nice: " .. tostring(fault))
  end
  return slurm.SUCCESS
end

return slurm.SUCCESS
