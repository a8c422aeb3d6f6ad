/* Progress of running jobs: they start and stop, and slow each other down on nodes and links.
 *
 * A running job reduces `left_s` at its `rate`. Whenever its neighbours change, its progress is booked and its rate is
 * computed again.
 */

static Heap timer_heap(State *s) {
    return (Heap){s->timers, s->jobs, offsetof(Job, timer), offsetof(Job, heap_slot)};
}

static inline const int32_t *nodes_of(State *s, int64_t row) { return s->held_nodes + s->jobs[row].pool; }

/* Return the first check for overdue jobs at or after an instant. */
static double limit_check(const State *s, double due) {
    double check = s->rules->limit_check_s, phase = s->rules->limit_phase_time;
    return check == 0.0 ? due : ceil((due - phase) / check) * check + phase;
}

/* Return when a running job reaches its time limit; under ideal execution limits do not apply. */
static double kill_time(State *s, int64_t row) {
    const Job *job = &s->jobs[row];
    if (!s->rules->limits_bind) return INFINITY;
    /* A job does not outlast the reservation that it runs in. */
    double last = job->booking == NONE ? INFINITY : s->bookings[job->booking].end_time;
    /* slurmctld counts limits in whole seconds of its clock. */
    double since = s->rules->limit_check_s == 0.0 ? job->since_time : floor(job->since_time);
    return limit_check(s, least(since + job->limit_s, last));
}

/* Set the timer of a job: the first of its end, its time limit and the instant set by its policy. */
EXPORT void set_timer(State *s, int64_t row) {
    Job *job = &s->jobs[row];
    Tally *tally = s->tally;
    Heap heap = timer_heap(s);
    double due = job->watch_time;
    if (job->phase == RUNNING) due = least(due, least(job->finish_time, kill_time(s, row)));
    job->timer = due;
    if (job->heap_slot != NONE) {
        if (due == INFINITY) tally->timers = heap_remove(&heap, tally->timers, (int32_t)row);
        else heap_moved(&heap, tally->timers, (int32_t)row);
    } else if (due < INFINITY) {
        tally->timers = heap_push(&heap, tally->timers, (int32_t)row);
    }
}

/* Book the progress and the cost of a running job up to now. */
EXPORT void book(State *s, int64_t row, double now) {
    Job *job = &s->jobs[row];
    double passed = now - job->booked_time;
    if (passed <= 0.0) return;
    job->attained_gpu_s += passed * job->held;
    double working = now - most(job->booked_time, job->progress_time);
    if (working > 0.0) {
        job->left_s = most(0.0, job->left_s - working * job->rate);
        job->exposed_gpu_s += working * job->held * job->exposed_ratio;
        job->lost_gpu_s += (passed - working) * job->held;
    } else {
        job->lost_gpu_s += passed * job->held;
    }
    job->booked_time = now;
}

/* Return the work per second of a running job under ideal execution, on its place if a pace is given for it. */
static double ideal_rate(State *s, int64_t row) {
    const Job *job = &s->jobs[row];
    double rate = job->held == job->work_gpus ? 1.0 : (double)job->held / job->work_gpus;
    if (row >= s->n_pace || job->held <= 1) return rate;
    return rate * s->pace[row * s->pace_columns + 2 * job->tier + (job->span > job->best_nodes)];
}

/* Return the work per second of a running job on its nodes, beside the jobs that run there. */
static double rate_of(State *s, int64_t row) {
    Job *job = &s->jobs[row];
    job->exposed_ratio = 0.0;
    if (s->rules->is_ideal || job->held == 0) return ideal_rate(s, row);
    const Profile *profile = &s->profiles[job->profile];
    double rate = 1.0, speed = INFINITY;
    if (job->held != job->work_gpus) rate = step_s(profile, job->work_gpus) / step_s(profile, job->held);
    const int32_t *nodes = nodes_of(s, row);
    for (int64_t place = 0; place < job->span; place++)
        speed = least(speed, s->type_speed[job->profile * s->type_speed_columns + s->nodes[nodes[place]].gpu_type]);
    if (job->held > 1) {
        /* Traffic is stated for the profile's own GPU type and the size asked: a faster job sends more often. */
        double pace = speed * rate;
        bool crosses = job->tier == SPINE_TIER;
        double bandwidth = slowest_gbps(s, nodes, job->span, profile->node_pressure, crosses, 0) / pace;
        int64_t best_nodes = parts_of(job->held, job->node_gpus);
        double best = best_gbps(s, best_nodes) / pace;
        /* GPUs of one node send to each other what two nodes would: the traffic is stated for two. */
        int64_t span = most_of(job->span, 2);
        rate /= inflation(profile, job->held, span, bandwidth, most_of(best_nodes, 2), best);
        double exposed = exposed_s(profile, job->held, span, bandwidth);
        job->exposed_ratio = exposed / (1.0 + exposed);
    }
    rate *= speed / job->reference_speed;
    if (job->partner != NONE) rate /= gpu_share_inflation(profile, &s->profiles[s->jobs[job->partner].profile]);
    return rate;
}

/* Compute the current rate of a running job, and when it ends. */
static void repace(State *s, int64_t row, double now) {
    book(s, row, now);
    Job *job = &s->jobs[row];
    job->rate = rate_of(s, row);
    job->finish_time = most(now, job->progress_time) + job->left_s / job->rate;
    set_timer(s, row);
}

/* Return whether a job sends over links that other jobs on its nodes use. */
static bool shares_links(State *s, int64_t row) {
    const Job *job = &s->jobs[row];
    return job->held > 0 && (job->span > 1 || (job->held > 1 && s->rules->node_shared));
}

static bool shares_leaf(State *s, int64_t one, int64_t other) {
    const int32_t *mine = nodes_of(s, one), *theirs = nodes_of(s, other);
    for (int64_t here = 0; here < s->jobs[one].span; here++)
        for (int64_t there = 0; there < s->jobs[other].span; there++)
            if (s->nodes[mine[here]].leaf == s->nodes[theirs[there]].leaf) return true;
    return false;
}

/* Compute the rates of the other jobs that cross the uplinks of a job's leaves; of all if the spine binds. */
static void repace_crossing(State *s, int64_t row, double now) {
    Tally *tally = s->tally;
    double share = spine_ratio(s, tally->loaded);
    bool for_all = share != tally->spine_ratio;
    tally->spine_ratio = share;
    for (int64_t place = 0; place < tally->running; place++) {
        int32_t other = s->running[place];
        if (other == row || s->jobs[other].tier != SPINE_TIER || s->jobs[other].held == 0) continue;
        if (for_all || shares_leaf(s, row, other)) repace(s, other, now);
    }
}

/* Compute the rates of the jobs that share links with a job that starts or stops. */
static void repace_neighbours(State *s, int64_t row, double now) {
    if (s->rules->is_ideal || !shares_links(s, row)) return;
    const Job *job = &s->jobs[row];
    for (int64_t place = 0; place < job->span; place++) {
        int32_t node = s->held_nodes[job->pool + place];
        for (int64_t other = 0; other < s->nodes[node].running; other++) {
            int32_t neighbour = s->node_jobs[node * s->node_jobs_columns + other];
            if (neighbour != row && shares_links(s, neighbour)) repace(s, neighbour, now);
        }
    }
    if (job->tier == SPINE_TIER) repace_crossing(s, row, now);
}

/* Add a job of several GPUs to, or remove it from, the senders on its links. */
static void count_as_sender(State *s, int64_t row, int64_t step) {
    const Job *job = &s->jobs[row];
    if (job->held > 1)
        count_sender(s, nodes_of(s, row), job->span, s->profiles[job->profile].node_pressure, job->tier == SPINE_TIER, step);
}

static int8_t tier_of(State *s, int64_t row) {
    const Job *job = &s->jobs[row];
    if (job->span == 1) return NODE_TIER;
    const int32_t *nodes = nodes_of(s, row);
    int32_t leaf = s->nodes[nodes[0]].leaf;
    for (int64_t place = 1; place < job->span; place++)
        if (s->nodes[nodes[place]].leaf != leaf) return SPINE_TIER;
    return LEAF_TIER;
}

/* A part of a node. */
typedef struct {
    int64_t gpus, cpus, memory_mib;
} Portion;

/* Return what a job asks for on a node on which it takes a number of GPUs. */
static inline Portion asked_of(const Job *job, int64_t gpus) {
    return (Portion){gpus, most_of(job->cpus_per_node, gpus * job->cpus_per_gpu),
                     most_of(job->memory_mib_per_node, gpus * job->memory_mib_per_gpu)};
}

/* Return what a job takes of a node: what it asks for, or everything. */
static inline Portion portion_of(const Job *job, const Node *node, int64_t gpus) {
    if (job->exclusive) return (Portion){node->gpus, node->cpus, node->memory_mib};
    return asked_of(job, gpus);
}

static inline bool is_within(Portion part, Portion whole) {
    return part.gpus <= whole.gpus && part.cpus <= whole.cpus && part.memory_mib <= whole.memory_mib;
}

/* Book what a part of a job takes from a node, or gives back to it (`sign` -1); return its GPUs. */
static int64_t take(State *s, int64_t row, int64_t node_row, int64_t gpus, int64_t sign) {
    Node *node = &s->nodes[node_row];
    Portion part = portion_of(&s->jobs[row], node, gpus);
    node->gpus_free -= (int32_t)(sign * part.gpus);
    node->cpus_free -= (int32_t)(sign * part.cpus);
    node->memory_free_mib -= sign * part.memory_mib;
    s->leaves[node->leaf].gpus_free -= (int32_t)(sign * part.gpus);
    return part.gpus;
}

/* Add a job to the list of a node's jobs. */
static void join(State *s, int64_t row, int64_t node_row) {
    Node *node = &s->nodes[node_row];
    s->node_jobs[node_row * s->node_jobs_columns + node->running] = (int32_t)row;
    node->running++;
}

/* Remove a job from the list of a node's jobs. */
static void forget(State *s, int64_t row, int64_t node_row) {
    Node *node = &s->nodes[node_row];
    int32_t *here = s->node_jobs + node_row * s->node_jobs_columns;
    int32_t last = node->running - 1;
    for (int32_t place = 0; place <= last; place++)
        if (here[place] == row) {
            here[place] = here[last];
            here[last] = NONE;
            break;
        }
    node->running = last;
}

static void begin(State *s, int64_t row, double now) {
    Job *job = &s->jobs[row];
    Tally *tally = s->tally;
    s->running[tally->running] = (int32_t)row;
    job->queue_slot = (int32_t)tally->running;
    tally->running++;
    tally->pending--;
    job->phase = RUNNING;
    job->since_time = now;
    job->booked_time = now;
    job->progress_time = job->starts == 0 ? now : now + s->rules->restart_s;
    if (job->starts == 0) job->start_time = now;
    job->starts++;
    repace(s, row, now);
    repace_neighbours(s, row, now);
}

/* Start a pending job on the picked nodes. */
EXPORT void start(State *s, int64_t row, double now) {
    Job *job = &s->jobs[row];
    Tally *tally = s->tally;
    int64_t gpus = 0, taken = 0;
    for (int64_t place = 0; place < tally->picked; place++) {
        int32_t node = s->pick_nodes[place], took = s->pick_gpus[place];
        s->held_nodes[job->pool + place] = node;
        s->held_gpus[job->pool + place] = took;
        gpus += took;
        taken += take(s, row, node, took, 1);
        join(s, row, node);
    }
    job->held = (int32_t)gpus;
    job->idle_gpus = (int32_t)(taken - gpus);
    job->span = (int32_t)tally->picked;
    job->is_guest = 0;
    tally->gpus_free -= taken;
    job->tier = tier_of(s, row);
    count_as_sender(s, row, 1);
    begin(s, row, now);
}

/* Return a stopped job to its last checkpoint, or to its beginning if it makes none. */
static void fall_back(State *s, int64_t row) {
    Job *job = &s->jobs[row];
    double done = job->work_s - job->left_s, kept = 0.0;
    if (job->checkpoint_s > 0.0) kept = floor(done / job->checkpoint_s) * job->checkpoint_s;
    job->lost_gpu_s += (done - kept) / job->rate * job->held;
    job->left_s = job->work_s - kept;
}

static void leave(State *s, int64_t row) {
    count_as_sender(s, row, -1);
    Tally *tally = s->tally;
    Job *job = &s->jobs[row];
    int32_t last = s->running[tally->running - 1];
    s->running[job->queue_slot] = last;
    s->jobs[last].queue_slot = job->queue_slot;
    job->queue_slot = NONE;
    tally->running--;
}

/* Take a running job off its GPUs; it ends, or pends again with its progress (`phase`). */
static void stop(State *s, int64_t row, double now, int64_t phase) {
    Job *job = &s->jobs[row];
    Tally *tally = s->tally;
    book(s, row, now);
    job->held_gpu_s += (job->held + job->idle_gpus) * (now - job->since_time);
    s->segments[tally->segments] = (Segment){
        .job = (int32_t)row, .gpus = job->held + job->idle_gpus, .nodes = job->span, .tier = job->tier,
        .start_time = job->since_time, .end_time = now,
    };
    tally->segments++;
    leave(s, row);
    int32_t partner = job->partner;
    for (int64_t place = 0; place < job->span; place++) {
        int32_t node = s->held_nodes[job->pool + place];
        forget(s, row, node);
        if (partner == NONE) take(s, row, node, s->held_gpus[job->pool + place], -1);
    }
    if (partner == NONE) {
        tally->gpus_free += job->held + job->idle_gpus;
    } else {
        s->jobs[partner].partner = NONE;
        s->jobs[partner].is_guest = 0;
        job->partner = NONE;
        job->is_guest = 0;
    }
    job->phase = (int8_t)phase;
    job->since_time = now;
    if (phase == PENDING && s->rules->loses_work) fall_back(s, row);
    job->finish_time = INFINITY;
    job->watch_time = INFINITY;
    set_timer(s, row);
    repace_neighbours(s, row, now);
    if (partner != NONE) repace(s, partner, now);
    job->held = 0;
    job->idle_gpus = 0;
    job->span = 0;
}

/* End a running job. */
EXPORT void end(State *s, int64_t row, double now, int64_t how) {
    stop(s, row, now, ENDED);
    s->jobs[row].end = (int8_t)how;
    s->jobs[row].end_time = now;
    s->tally->ended++;
}

/* Return a running job to the queue. */
EXPORT void preempt(State *s, int64_t row, double now) {
    stop(s, row, now, PENDING);
    s->jobs[row].preemptions++;
    s->tally->pending++;
}

/* Return how a job whose timer is due ends: an `End`, or 0 if its policy set the timer. */
EXPORT int64_t expired(State *s, int64_t row) {
    const Job *job = &s->jobs[row];
    if (job->phase != RUNNING) return END_NOT;
    if (job->finish_time <= job->timer) return END_FINISHED;
    return kill_time(s, row) <= job->timer ? END_TIME_LIMIT : END_NOT;
}

/* Return the instant of the next submission, timer or fault; infinity if there is none. */
EXPORT double next_instant(State *s) {
    const Tally *tally = s->tally;
    double now = INFINITY;
    if (tally->arrived < s->n_jobs) now = s->jobs[tally->arrived].submit_time;
    if (tally->timers > 0) now = least(now, s->jobs[s->timers[0]].timer);
    if (tally->faults < s->n_faults && (now < INFINITY || tally->pending > 0))
        now = least(now, s->faults[tally->faults].time);
    return now;
}

/* Note what happens to a node; one that is drained keeps its jobs and takes no more. */
static void change_node(Node *node, int64_t kind) {
    if (kind == FAILED || kind == REPAIRED) node->is_failed = kind == FAILED;
    if (kind == DRAINED || kind == RESUMED) node->is_drained = kind == DRAINED;
    node->is_up = !node->is_failed && !node->is_drained;
}

/* Apply the faults up to now, and return a job to requeue because of one; NONE when there is none left. */
EXPORT int64_t next_victim(State *s, double now) {
    Tally *tally = s->tally;
    while (tally->faults < s->n_faults && s->faults[tally->faults].time <= now) {
        const Fault *fault = &s->faults[tally->faults];
        Node *node = &s->nodes[fault->node];
        change_node(node, fault->kind);
        if (fault->kind == FAILED && node->running > 0) return s->node_jobs[fault->node * s->node_jobs_columns];
        tally->faults++;
    }
    return NONE;
}
