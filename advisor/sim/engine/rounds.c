/* Policies that decide in rounds: the loop between two rounds, and what a decision changes. */

/* No gang is as large: a shape of which nothing failed. */
enum { NO_ROUND = 1 << 30 };

/* Run arrivals and ends until `until` (PAUSED), all jobs have ended (DONE), or the segments are full (FULL). */
static int64_t run_events(State *s, double until) {
    Tally *tally = s->tally;
    for (;;) {
        if (s->n_segments - tally->segments < 2 * tally->running + 2) return FULL;
        double now = next_instant(s);
        if (now == INFINITY && tally->pending == 0) return DONE;
        if (now > until) {
            tally->now = until;
            return PAUSED;
        }
        tally->now = now;
        while (tally->timers > 0 && s->jobs[s->timers[0]].timer <= now) {
            int32_t row = s->timers[0];
            int64_t how = expired(s, row);
            if (how != END_NOT) {
                end(s, row, now, how);
            } else {
                s->jobs[row].watch_time = INFINITY;
                set_timer(s, row);
            }
        }
        for (int64_t victim; (victim = next_victim(s, now)) != NONE;) preempt(s, victim, now);
        for (; tally->arrived < s->n_jobs && s->jobs[tally->arrived].submit_time <= now; tally->arrived++) {
            Job *job = &s->jobs[tally->arrived];
            if (job->phase == FUTURE) {
                job->phase = PENDING;
                job->since_time = now;
                tally->pending++;
            } else {
                tally->ended++; /* it can never fit */
            }
        }
    }
}

/* Return the instant of the next decision: the next multiple of the period with an active job. */
static double next_round(State *s, double every_s) {
    const Tally *tally = s->tally;
    if (every_s == 0.0) return next_instant(s);
    if (tally->pending > 0 || tally->running > 0 || tally->arrived == s->n_jobs)
        return (floor(tally->now / every_s) + 1.0) * every_s;
    return ceil(s->jobs[tally->arrived].submit_time / every_s) * every_s;
}

/* Run until a decision is due (ROUND), with all progress booked, or until `run_events` stops. */
EXPORT int64_t run_round(State *s, double every_s, double until) {
    double due = next_round(s, every_s);
    int64_t stopped = run_events(s, least(until, due));
    if (stopped != PAUSED || until < due) return stopped;
    for (int64_t place = 0; place < s->tally->running; place++) book(s, s->running[place], due);
    return ROUND;
}

/* Count the allocation of a job as free (`sign` -1), or as taken again (1). */
static void count_held(State *s, int64_t row, int64_t sign) {
    const Job *job = &s->jobs[row];
    for (int64_t at = job->pool; at < job->pool + job->span; at++) take(s, row, s->held_nodes[at], s->held_gpus[at], sign);
    s->tally->gpus_free -= sign * job->held;
}

/* Restart a running job at another size; return false and change nothing if that does not fit. */
static bool resize(State *s, int64_t row, int64_t gpus, double now) {
    count_held(s, row, -1);
    bool has_place = pick(s, row, gpus);
    count_held(s, row, 1);
    if (has_place) {
        preempt(s, row, now);
        s->jobs[row].preemptions--;
        s->jobs[row].resizes++;
        start(s, row, now);
    }
    return has_place;
}

static void shrink(State *s, int64_t row, int64_t gpus, double now) {
    const Job *job = &s->jobs[row];
    if (job->phase != RUNNING || gpus >= job->held) return;
    if (gpus == 0) preempt(s, row, now);
    else resize(s, row, gpus, now);
}

static void grow(State *s, int64_t row, int64_t gpus, int64_t smallest, double now) {
    for (int64_t size = gpus; size >= most_of(smallest, s->jobs[row].held + 1); size--)
        if (resize(s, row, size, now)) return;
}

/* Return later jobs to the queue so that a job fits, and pick its nodes. */
static bool push_aside(State *s, Victims *v, int64_t row, int64_t gpus, double now) {
    Job *job = &s->jobs[row];
    /* Taking one of two jobs that share GPUs frees none: only the host counts, and its guest goes with it. Whole nodes
     * are emptied of guests too. */
    for (int64_t place = 0; place < s->tally->running; place++) {
        Job *other = &s->jobs[s->running[place]];
        if (other->is_guest) other->key = gpus <= job->node_gpus ? -1.0 : s->jobs[other->partner].key;
    }
    /* The room is made for the size asked, so the size wanted stands there meanwhile. */
    int32_t asked = job->gpus;
    job->gpus = (int32_t)gpus;
    int64_t count = make_room(s, v, row, job->key);
    job->gpus = asked;
    for (int64_t place = 0; place < count; place++) {
        int32_t victim = v->rows[place], partner = s->jobs[victim].partner;
        if (partner != NONE && !s->jobs[victim].is_guest) preempt(s, partner, now);
        if (s->jobs[victim].phase == RUNNING) preempt(s, victim, now);
    }
    return count > 0 && pick(s, row, gpus);
}

/* Start a pending job on as many of `gpus` as fit, and remember in `failed` what size of its shape did not. */
static void start_largest(State *s, Victims *v, int64_t row, int64_t gpus, int64_t smallest, int32_t *failed, double now,
                          bool may_preempt) {
    /* Where a smaller gang of the shape failed, this one will. */
    for (int64_t size = least_of(gpus, *failed - 1); size >= smallest; size--) {
        if (pick(s, row, size) || (may_preempt && push_aside(s, v, row, size, now))) {
            start(s, row, now);
            return;
        }
        *failed = (int32_t)size;
    }
}

/* Start, resize and stop jobs to reach their sizes, in the order of `rows`; see `RoundView.serve`.
 *
 * `failed` is space for a number per shape.
 */
EXPORT void serve(State *s, Victims *v, const Integers *rows, const Integers *gpus, const Integers *smallest,
                  Integers *failed, double now, bool may_preempt) {
    for (int64_t shape = 0; shape < failed->n_items; shape++) failed->items[shape] = NO_ROUND;
    for (int64_t place = 0; place < s->tally->running; place++) s->jobs[s->running[place]].key = INFINITY;
    for (int64_t place = 0; place < rows->n_items; place++) s->jobs[rows->items[place]].key = (double)place;
    for (int64_t place = 0; place < rows->n_items; place++) shrink(s, rows->items[place], gpus->items[place], now);
    for (int64_t place = 0; place < rows->n_items; place++) {
        int32_t row = rows->items[place], size = gpus->items[place];
        const Job *job = &s->jobs[row];
        if (job->phase == RUNNING) grow(s, row, size, smallest->items[place], now);
        else if (job->phase == PENDING && size > 0)
            start_largest(s, v, row, size, smallest->items[place], &failed->items[job->shape], now, may_preempt);
    }
}

/* Start a pending job on as many of `gpus` as fit; return false if fewer than `smallest` do. */
EXPORT bool start_one(State *s, int64_t row, int64_t gpus, int64_t smallest, double now) {
    for (int64_t size = gpus; size >= smallest; size--)
        if (pick(s, row, size)) {
            start(s, row, now);
            return true;
        }
    return false;
}

/* Return running jobs to the queue. */
EXPORT void put_back(State *s, const Integers *rows, double now) {
    for (int64_t place = 0; place < rows->n_items; place++) preempt(s, rows->items[place], now);
}

/* Compute the work per second of jobs at sizes, alone on the best placement. */
EXPORT void best_rates(State *s, const Integers *rows, const Integers *gpus, Reals *rates) {
    for (int64_t place = 0; place < rows->n_items; place++) {
        const Job *job = &s->jobs[rows->items[place]];
        const Profile *profile = &s->profiles[job->profile];
        rates->items[place] = step_s(profile, job->work_gpus) / step_s(profile, gpus->items[place]);
    }
}
