-- Gives jobs that should start next a nice below 0 as they are submitted, by a table that sadvised writes in each round
-- (daemon.submit_table in sadvise.toml). job_submit.lua loads it where sadvise_site.lua names that table.
--
-- A job is left alone where anything about it or the table is out of the ordinary: a nice, a priority, a dependency, a
-- begin time, a reservation, an array, nodes of its own, no time limit, a table that is stale, damaged or larger than
-- MOST_BYTES.

local MOST_BYTES = 131072
local MOST_LIFTS = 100
-- Slurm keeps the lowest values for itself; sadvise undoes what is above this.
local LOWEST_NICE = -2000000000
-- For this many seconds the table is not read again, and a table is valid for no longer than this.
local READ_EVERY_S = 5
local LONGEST_VALID_S = 900
-- The clocks of the machines can differ by this.
local CLOCK_S = 5
local FORMAT = "sadvise submit table 1"

-- Slurm's numbers: no value was given; a nice of 0.
local NO_VALUE = 4294967294
local NICE_OFFSET = 2147483648
-- What job.shared is where a job shares its nodes with no other, or not with those of all users.
local OWN_NODES = { [0] = true, [2] = true, [3] = true }
local LONGEST_LIMIT_MINUTES = 1000000
local MOST_GPUS = 1000000

local INTEGER = "^%-?%d+$"
local DECIMAL = "^%d+%.?%d*$"

local function number(text, pattern, low, high)
  local value = #text <= 24 and string.find(text, pattern) and tonumber(text) or nil
  return value and value >= low and value <= high and value or nil
end

-- Each reads the rest of a line into the table and returns whether it is sound.
local READERS = {}

function READERS.written(loaded, rest)
  loaded.written = number(rest, INTEGER, 1, 1e11)
  return loaded.written
end

function READERS.valid(loaded, rest)
  loaded.valid = number(rest, INTEGER, 1, 1e11)
  return loaded.valid
end

function READERS.lifts(loaded, rest)
  loaded.lifts = number(rest, INTEGER, 0, MOST_LIFTS)
  return loaded.lifts
end

function READERS.default(loaded, rest)
  loaded.default = rest
  return true
end

function READERS.exclude(loaded, rest)
  loaded.excluded[rest] = true
  return true
end

function READERS.partition(loaded, rest)
  local name, nice, step, classes = string.match(rest, "^(%S+) (%S+) (%S+) (%S+)$")
  if not name or loaded.partitions[name] then
    return false
  end
  local entry = {
    nice = number(nice, INTEGER, LOWEST_NICE, -1),
    step = number(step, INTEGER, 1, -LOWEST_NICE),
    classes = number(classes, INTEGER, 0, 100),
    bounds = {},
  }
  loaded.partitions[name] = entry
  return entry.nice and entry.step and entry.classes and entry.nice - entry.step * entry.classes >= LOWEST_NICE
end

function READERS.bound(loaded, rest)
  local name, user, gpu_s, share = string.match(rest, "^(%S+) (%S+) (%S+) (%S+)$")
  local entry = name and loaded.partitions[name]
  local key = user == "*" and user or (user and number(user, "^%d+$", 0, NO_VALUE))
  if not entry or not key or entry.bounds[key] then
    return false
  end
  local bound = { gpu_s = number(gpu_s, DECIMAL, 0, 1e15), share = number(share, DECIMAL, 0, 1) }
  entry.bounds[key] = bound
  return bound.gpu_s and bound.share
end

-- The GPUs that are left for interactive jobs of a pool, and how many one user can have.
function READERS.room(loaded, rest)
  local pool, nice, minutes, gpus, each = string.match(rest, "^(%S+) (%S+) (%S+) (%S+) (%S+)$")
  if not pool or loaded.rooms[pool] then
    return false
  end
  local room = {
    nice = number(nice, INTEGER, LOWEST_NICE, -1),
    minutes = number(minutes, INTEGER, 0, LONGEST_LIMIT_MINUTES),
    gpus = number(gpus, INTEGER, 0, MOST_GPUS),
    each = number(each, INTEGER, 0, MOST_GPUS),
    held = {},
  }
  loaded.rooms[pool] = room
  return room.nice and room.minutes and room.gpus and room.each
end

function READERS.held(loaded, rest)
  local pool, user, gpus = string.match(rest, "^(%S+) (%S+) (%S+)$")
  local room, key = pool and loaded.rooms[pool], user and number(user, "^%d+$", 0, NO_VALUE)
  if not room or not key or room.held[key] then
    return false
  end
  room.held[key] = number(gpus, INTEGER, 0, MOST_GPUS)
  return room.held[key]
end

function READERS.interactive(loaded, rest)
  local name, pool = string.match(rest, "^(%S+) (%S+)$")
  if not name or not loaded.rooms[pool] or loaded.pools[name] then
    return false
  end
  loaded.pools[name] = pool
  return true
end

-- Return the table in a text; nil where any line of it is not understood.
local function parse(text)
  local loaded = { excluded = {}, partitions = {}, rooms = {}, pools = {} }
  local count, ended = 0, false
  for line in string.gmatch(text, "([^\n]*)\n") do
    local word, rest = string.match(line, "^(%l+) (.+)$")
    if ended or (count == 0 and line ~= FORMAT) then
      return nil
    elseif word == "end" then
      ended = number(rest, INTEGER, count, count) ~= nil
      if not ended then
        return nil
      end
    elseif count > 0 and not (READERS[word] and READERS[word](loaded, rest)) then
      return nil
    end
    count = count + 1
  end
  local whole = ended and loaded.written and loaded.valid and loaded.lifts
  if not whole or loaded.valid - loaded.written > LONGEST_VALID_S then
    return nil
  end
  return loaded
end

local function read_text(path)
  local file = io.open(path, "rb")
  if not file then
    return nil
  end
  local text = file:read(MOST_BYTES + 1)
  file:close()
  return type(text) == "string" and #text <= MOST_BYTES and text or nil
end

-- The count behind "gres:gpu", as in "gres/gpu:a100=2"; the sum where a job asks for several types, 0 without any.
local function gpu_count(asked)
  if type(asked) ~= "string" then
    return 0
  end
  local sum = 0
  for part in string.gmatch(string.sub(asked, 1, 512), "[^,]+") do
    local rest = string.match(part, "^gres[:/]gpu(.*)$")
    if rest and (rest == "" or string.find(rest, "^[:=]")) then
      sum = sum + (tonumber(string.match(rest, "[:=](%d+)$")) or 1)
    end
  end
  return sum
end

local function given(value)
  return type(value) == "number" and value < NO_VALUE and value or nil
end

-- The most GPUs that a job can ask for; 0 where that is not known.
local function gpus_of(job)
  if gpu_count(job.tres_per_socket) > 0 then
    return 0
  end
  local tasks = given(job.num_tasks)
  local nodes = given(job.max_nodes) or tasks or 1
  local gpus = math.max(
    gpu_count(job.tres_per_job),
    gpu_count(job.tres_per_node) * nodes,
    gpu_count(job.tres_per_task) * (tasks or nodes)
  )
  return gpus <= MOST_GPUS and gpus or 0
end

local function is_set(text)
  return text ~= nil and text ~= ""
end

local function opted_out(job)
  local comment = string.lower(type(job.comment) == "string" and job.comment or "")
  return string.find(comment, "sadvise:", 1, true) ~= nil and string.find(comment, "%f[%w]off%f[%W]") ~= nil
end

-- Whether nothing but GPUs can keep a job waiting, and its nice can be taken back as it was set.
local function is_plain(job)
  local begin = job.begin_time
  return job.nice == NO_VALUE
    and job.priority == NO_VALUE
    and job.het_job_offset == NO_VALUE
    and job.min_nodes == job.max_nodes
    and (begin == nil or begin == 0 or begin == NO_VALUE)
    and not is_set(job.array_inx)
    and not is_set(job.dependency)
    and not is_set(job.reservation)
    and not is_set(job.cpus_per_tres)
    and not OWN_NODES[job.shared]
    and not opted_out(job)
end

-- Return the function that gives a job its nice, by the table at a path; `log` writes a line into slurmctld's log.
-- Jobs without a script are interactive, and so are those of the partitions that `notebooks` has.
return function(path, log, notebooks)
  local loaded, read_time, last_text
  local counted, count = nil, 0
  -- The interactive jobs that were lifted since the snapshot of the table.
  local given_lately = {}

  local function table_now(now)
    if not read_time or now < read_time or now - read_time >= READ_EVERY_S then
      read_time = now
      local text = read_text(path)
      if text ~= last_text then
        loaded, last_text = text and parse(text), text
        if text and not loaded then
          log("the submit table is not understood, and jobs are left alone")
        end
      end
    end
    if loaded and loaded.written - CLOCK_S <= now and now < loaded.valid then
      return loaded
    end
    return nil
  end

  local function nice_of(job, user, rows)
    local entry = rows.partitions[job.partition or rows.default or ""]
    local bound = entry and (entry.bounds[user] or entry.bounds["*"])
    local minutes = job.time_limit
    if not bound or rows.excluded[job.account or job.default_account or ""]
      or type(minutes) ~= "number" or minutes <= 0 or minutes > LONGEST_LIMIT_MINUTES then
      return nil
    end
    local gpu_s = gpus_of(job) * minutes * 60 * bound.share
    if gpu_s <= 0 or gpu_s >= bound.gpu_s then
      return nil
    end
    local class = math.floor(math.log(bound.gpu_s / gpu_s) / math.log(2))
    return entry.nice - entry.step * math.max(0, math.min(class, entry.classes))
  end

  -- Return the nice of an interactive job that fits in what is left of its pool, and for its user.
  local function interactive_nice(job, user, rows, now)
    local partition = job.partition or rows.default or ""
    local pool = rows.pools[partition]
    local room = pool and rows.rooms[pool]
    if not room then
      return nil
    end
    local minutes, gpus = job.time_limit, gpus_of(job)
    if rows.excluded[job.account or job.default_account or ""]
      or type(minutes) ~= "number" or minutes <= 0 or minutes > room.minutes
      or gpus <= 0 or (gpus > 1 and job.max_nodes ~= 1) or (is_set(job.script) and not notebooks[partition]) then
      return nil
    end
    local left, of_user, kept = room.gpus, room.each - (room.held[user] or 0), {}
    for _, each in ipairs(given_lately) do
      if each.time >= rows.written - CLOCK_S then
        kept[#kept + 1] = each
        left = left - (each.pool == pool and each.gpus or 0)
        of_user = of_user - (each.pool == pool and each.user == user and each.gpus or 0)
      end
    end
    given_lately = kept
    if gpus > left or gpus > of_user then
      return nil
    end
    kept[#kept + 1] = { time = now, pool = pool, user = user, gpus = gpus }
    return room.nice
  end

  return function(job)
    if not is_plain(job) then
      return
    end
    local now = os.time()
    local rows = table_now(now)
    if not rows then
      return
    end
    local first = interactive_nice(job, job.user_id, rows, now)
    if first then
      job.nice = NICE_OFFSET + first
      return
    end
    if counted ~= rows.written then
      counted, count = rows.written, 0
    end
    local nice = count < rows.lifts and nice_of(job, job.user_id, rows)
    if nice then
      count = count + 1
      job.nice = NICE_OFFSET + nice
    end
  end
end
