/* Preemption as in slurmctld: a job without nodes takes those of running jobs that its group may preempt.
 *
 * Groups are partitions or QOS. Candidates are freed one by one on trial until the job fits; those that it needed are
 * then tried again in another order, twice, so that fewer give way; docs/fidelity.md has the observations.
 */

/* How the running jobs of a group give way. */
enum { STAYS, GOES_BACK, GOES_AWAY };

/* preempt_reorder_count of slurm.conf. */
#define REORDERS 1

static void forget_plan(Slurm *m, int64_t row);
static void remove_departure(Slurm *m, int64_t row);
static void add_departure(State *s, Slurm *m, int64_t row, double now);
static bool waits_for_switches(State *s, Slurm *m, int64_t row, double now);
EXPORT void requeue(State *s, Slurm *m, int64_t row, double now);
EXPORT void ask_for_pass(Slurm *m, double now);

/* Return an instant as slurmctld compares it: in whole seconds, unless the model looks up at every instant. */
static double on_clock(const Slurm *m, double instant) { return m->control->tick_s > 0.0 ? floor(instant) : instant; }

static inline const Group *group_of(const Slurm *m, int64_t row) { return &m->groups[m->group[m->began[row]]]; }

/* Free what a running job holds for a trial (`sign` -1), or take it again. */
static void lend(State *s, int64_t row, int64_t sign) {
    const Job *job = &s->jobs[row];
    for (int64_t place = job->pool; place < job->pool + job->span; place++) {
        int32_t node = s->held_nodes[place];
        s->tally->gpus_free -= sign * take(s, row, node, s->held_gpus[place], sign);
        s->nodes[node].running += (int32_t)sign;
    }
}

static void lend_all(State *s, const Slurm *m, int64_t count, int64_t sign) {
    for (int64_t place = 0; place < count; place++) lend(s, m->candidates[place], sign);
}

/* Return whether the partition at hand has a node of a running job. */
static bool is_in_reach(const State *s, const Slurm *m, int64_t row) {
    const Job *job = &s->jobs[row];
    for (int64_t place = job->pool; place < job->pool + job->span; place++)
        if (can_use(m, s->held_nodes[place])) return true;
    return false;
}

/* Return how many of the picked nodes a running job holds. */
static int64_t picked_held(const State *s, int64_t row) {
    const Job *job = &s->jobs[row];
    int64_t count = 0;
    for (int64_t place = job->pool; place < job->pool + job->span; place++)
        for (int64_t picked = 0; picked < s->tally->picked; picked++)
            count += s->pick_nodes[picked] == s->held_nodes[place];
    return count;
}

/* Return whether a running job is preempted before another: of a lower order, on fewer nodes, submitted earlier. */
static bool gives_way_before(const State *s, const Slurm *m, int32_t one, int32_t other) {
    double order = group_of(m, one)->order, other_order = group_of(m, other)->order;
    if (order != other_order) return order < other_order;
    if (s->jobs[one].span != s->jobs[other].span) return s->jobs[one].span < s->jobs[other].span;
    return one < other;
}

/* List the running jobs that an entry may preempt, in the order in which they are tried; return how many there are. */
static int64_t list_candidates(const State *s, Slurm *m, int32_t entry, double now) {
    int64_t count = 0;
    if (!m->groups[m->group[entry]].preempts_any) return 0;
    for (int64_t place = 0; place < s->tally->running; place++) {
        int32_t row = s->running[place];
        const Group *group = group_of(m, row);
        bool is_exempt = on_clock(m, now) - on_clock(m, s->jobs[row].since_time) < group->exempt_s;
        if (!may_preempt(m, entry, m->began[row]) || group->mode == STAYS || is_exempt) continue;
        if (m->grace_end_time[row] == -INFINITY || !is_in_reach(s, m, row)) continue;
        int64_t low = 0, high = count;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (gives_way_before(s, m, m->candidates[middle], row)) low = middle + 1;
            else high = middle;
        }
        memmove(m->candidates + low + 1, m->candidates + low, (size_t)(count - low) * sizeof row);
        m->candidates[low] = row;
        count++;
    }
    return count;
}

/* Pick nodes that are free now for a job, under as few switches as it waits for; return false if there are none. */
static bool pick_accepted(State *s, Slurm *m, int64_t row, double until, double now) {
    return pick_now(s, m, row, until) && !waits_for_switches(s, m, row, now);
}

/* Return whether a job fits if all candidates give way, and pick its nodes. */
static bool fits_without(State *s, Slurm *m, int64_t row, int64_t count, double until, double now) {
    lend_all(s, m, count, -1);
    bool fits = pick_accepted(s, m, row, until, now);
    lend_all(s, m, count, 1);
    return fits;
}

/* Put the last of the candidates that were freed first, and the others of them by how many picked nodes they hold. */
static void reorder(const State *s, const Slurm *m, int64_t freed) {
    int32_t *listed = m->candidates, last = listed[freed - 1];
    memmove(listed + 1, listed, (size_t)(freed - 1) * sizeof last);
    listed[0] = last;
    for (int64_t place = 2; place < freed; place++) {
        int32_t row = listed[place];
        int64_t at = place, held = picked_held(s, row);
        for (; at > 1 && picked_held(s, listed[at - 1]) < held; at--) listed[at] = listed[at - 1];
        listed[at] = row;
    }
}

/* Note that a running job gives way: at the end of the pass, or after its time of grace.
 *
 * When that is over, the next pass that chooses the job stops it, or the next check for overdue jobs.
 */
static void give_way(State *s, Slurm *m, int32_t row, double now) {
    if (m->grace_end_time[row] == INFINITY) {
        m->grace_end_time[row] = now + group_of(m, row)->grace_s;
        if (m->grace_end_time[row] > now) {
            s->jobs[row].watch_time = limit_check(s, m->grace_end_time[row]);
            set_timer(s, row);
            /* It is expected to end with its time of grace. */
            remove_departure(m, row);
            add_departure(s, m, row, now);
        }
    }
    if (now < m->grace_end_time[row]) return;
    m->grace_end_time[row] = -INFINITY;
    m->leaving[m->control->leaving++] = row;
}

/* Make candidates give way so that a job fits, which it does without all of them. */
static void choose_victims(State *s, Slurm *m, int64_t row, int64_t count, double until, double now) {
    int64_t freed = 0;
    for (int64_t trial = 0;; trial++) {
        freed = 0;
        do lend(s, m->candidates[freed++], -1);
        while (!pick_accepted(s, m, row, until, now) && freed < count);
        lend_all(s, m, freed, 1);
        if (trial > REORDERS || count <= trial + 1) break;
        reorder(s, m, freed);
    }
    for (int64_t place = 0; place < freed; place++)
        if (picked_held(s, m->candidates[place]) > 0) give_way(s, m, m->candidates[place], now);
}

/* Make running jobs give way so that a job of the line fits, and pick its nodes as if all candidates had.
 *
 * Return whether it fits without them.
 */
static bool preempts_others(State *s, Slurm *m, int32_t entry, double until, double now) {
    if (m->n_groups == 0) return false;
    int32_t row = row_of(s, m, entry);
    int64_t count = list_candidates(s, m, entry, now);
    if (count == 0 || !fits_without(s, m, row, count, until, now)) return false;
    int64_t picked = s->tally->picked;
    size_t size = (size_t)picked * sizeof *m->ready;
    memcpy(m->ready, s->pick_nodes, size);
    /* After its first choice a job waits until those that it chose must have gone. */
    if (on_clock(m, m->preempt_time[row]) <= on_clock(m, now) - m->control->preempt_wait_s) {
        m->preempt_time[row] = now;
        choose_victims(s, m, row, count, until, now);
    }
    memcpy(s->pick_nodes, m->ready, size);
    s->tally->picked = picked;
    return true;
}

/* Stop a running job that gives way: it goes back to the line, or it ends. */
static void stop_preempted(State *s, Slurm *m, int32_t row, double now) {
    m->grace_end_time[row] = INFINITY;
    if (group_of(m, row)->mode == GOES_BACK) {
        requeue(s, m, row, now);
        return;
    }
    charge_stopped(s, m, row, now);
    forget_plan(m, row);
    count_run(s, m, row, m->began[row], -1.0);
    count_submitted(s, m, row, -1.0);
    end(s, row, now, END_PREEMPTED);
}

/* Stop the running jobs that gave way in a pass; the end of each runs a main pass at once. */
static void stop_leaving(State *s, Slurm *m, double now) {
    Control *control = m->control;
    if (control->leaving == 0) return;
    for (int64_t place = 0; place < control->leaving; place++) stop_preempted(s, m, m->leaving[place], now);
    control->leaving = 0;
    ask_for_pass(m, now);
    control->direct_time = now + control->completing_s;
}
