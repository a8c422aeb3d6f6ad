-- Turns the habits of a site into hints for sadvise, which reads them in the comment of a job:
-- "sadvise: model=bert gpus=2-8". What the habits are stands in sadvise_site.lua.
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
  site.holds_requests = written.hold_requests == true
  site.asks_environment = site.variable ~= nil or #site.variables > 0
  return site
end

local loaded, SITE = pcall(read_site)
if not loaded then
  log("no site table is in use: " .. tostring(SITE))
  SITE = { variables = {}, rules = {}, extend = false, asks_environment = false, holds_requests = false }
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

local function hint(job)
  local comment = job.comment or ""
  -- The user has spoken, or wrote something that is not ours to add to.
  if comment ~= "" and (not SITE.extend or #comment > COMMENT_LENGTH) then
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
  return reader()(SITE.submit_table, log)
end

local lifts, lift = pcall(lifter)
if not lifts then
  log("no job gets a nice: " .. tostring(lift))
  lift = function() end
end

function slurm_job_submit(job_desc, _partitions, _uid)
  local went_well, fault = pcall(hint, job_desc)
  if not went_well then
    log("a job goes without hints: " .. tostring(fault))
  end
  went_well, fault = pcall(lift, job_desc)
  if not went_well then
    log("a job goes without a nice: " .. tostring(fault))
  end
  return slurm.SUCCESS
end

local function is_given(value)
  return type(value) == "number" and not NO_VALUES[value] or text_or_nil(value) ~= nil
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
