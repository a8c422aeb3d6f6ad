/* Backfill as in slurmctld: every tested job reserves whole nodes, and no job delays a reservation before it.
 *
 * Every pass makes its reservations in the order of the line. Running jobs are expected to end at their limits. Their
 * ends are examined in groups that grow with the distance, as in slurmctld; docs/fidelity.md has the observations.
 */

#define GROUP_S 30.0
#define YEAR_S 31536000.0

/* Return the run time that backfill assumes for a job. */
static inline double planned_limit_s(const Slurm *m, const Job *job) {
    if (m->control->soft_limits && job->soft_limit_s > 0.0) return least(job->soft_limit_s, job->limit_s);
    return least(job->limit_s, YEAR_S);
}

/* Return when the wait of a job for few switches ends; its clock starts once, at the first request for them. */
static double switch_wait_ends(State *s, Slurm *m, int64_t row) {
    return m->switches_time[row] + least(s->jobs[row].switches_wait_s, m->control->max_switch_wait_s);
}

/* Return whether a job still waits for fewer leaves than the picked nodes span. */
static bool waits_for_switches(State *s, Slurm *m, int64_t row, double now) {
    int32_t switches = s->jobs[row].switches;
    return 0 < switches && switches < leaves_picked(s) && now < switch_wait_ends(s, m, row);
}

/* Mark the expected ends on the nodes of a job as changed. */
static void mark_stale(State *s, Slurm *m, int64_t row) {
    const Job *job = &s->jobs[row];
    for (int64_t at = job->pool; at < job->pool + job->span; at++) m->stale[s->held_nodes[at]] = 1;
}

/* Start the job at a place of the line on the picked nodes. */
static void launch(State *s, Slurm *m, int64_t place, double now) {
    int32_t row = m->line[place];
    strike(s, m, place);
    s->jobs[row].watch_time = INFINITY;
    start(s, row, now);
    mark_stale(s, m, row);
}

/* List the nodes with free GPUs, with the instant up to which each is not reserved. */
static void list_room(State *s, Slurm *m) {
    m->control->room = 0;
    for (int32_t node = 0; node < s->n_nodes; node++)
        if (s->nodes[node].gpus_free > 0 && s->nodes[node].is_up) m->room[m->control->room++] = node;
}

/* Return whether a job could start now; one that cannot start now cannot start later in the same pass.
 *
 * Of jobs that ask alike, those with a longer limit cannot start where one could not.
 */
static bool may_start(State *s, Slurm *m, int64_t row, double now) {
    const Job *job = &s->jobs[row];
    if (job->gpus > s->tally->gpus_free) return false;
    double limit_s = planned_limit_s(m, job), until = now + limit_s;
    /* A job whose request was changed has no shape. */
    bool is_known = job->shape != NONE;
    if (is_known && m->refused_pass[job->shape] == m->control->passes && limit_s >= m->refused_s[job->shape]) return false;
    int64_t gpus_each = per_node(s, row), gpus = 0, nodes = 0;
    for (int64_t place = 0; place < m->control->room; place++) {
        int32_t node = m->room[place];
        if (gpus_each > 0) nodes += is_open(s, m, job, node, gpus_each, until);
        else gpus += usable_gpus_until(s, m, job, node, until);
        if (gpus_each > 0 ? nodes >= job->nodes_min : gpus >= job->gpus) return true;
    }
    if (is_known) {
        m->refused_pass[job->shape] = m->control->passes;
        m->refused_s[job->shape] = limit_s;
    }
    return false;
}

static double expected_end(State *s, Slurm *m, int64_t row, double now) {
    const Job *job = &s->jobs[row];
    double hard = job->since_time + least(job->limit_s, YEAR_S);
    if (!m->control->soft_limits || job->soft_limit_s <= 0.0) return hard;
    double soft = job->since_time + job->soft_limit_s;
    /* Past its soft limit a job is planned with half of what is left. */
    return now < soft ? least(hard, soft) : now + 0.5 * (hard - now);
}

/* Sort the expected ends of the jobs of a node, with the GPUs that are free from each end on. */
static void plan_node(State *s, Slurm *m, int64_t node_row, double now) {
    m->stale[node_row] = 0;
    const Node *node = &s->nodes[node_row];
    double *ends = m->ends + node_row * m->ends_columns;
    int32_t *freed = m->freed + node_row * m->freed_columns;
    const int32_t *here = s->node_jobs + node_row * s->node_jobs_columns;
    for (int64_t place = 0; place < node->running; place++) {
        const Job *job = &s->jobs[here[place]];
        double when = expected_end(s, m, here[place], now);
        int32_t gpus = 0;
        for (int64_t at = job->pool; at < job->pool + job->span; at++)
            if (s->held_nodes[at] == node_row) gpus = s->held_gpus[at];
        int64_t at = place;
        for (; at > 0 && ends[at - 1] > when; at--) {
            ends[at] = ends[at - 1];
            freed[at] = freed[at - 1];
        }
        ends[at] = when;
        freed[at] = gpus;
    }
    int32_t free_gpus = node->gpus_free;
    for (int64_t place = 0; place < node->running; place++) {
        free_gpus += freed[place];
        freed[place] = free_gpus;
    }
}

/* Return when a planned node first has the GPUs free, ignoring reservations and GPU types; infinity for never. */
static double free_from(const State *s, const Slurm *m, int64_t node_row, int64_t gpus, double now) {
    const Node *node = &s->nodes[node_row];
    if (!node->is_up || node->gpus < gpus) return INFINITY;
    if (node->gpus_free >= gpus) return now;
    for (int64_t place = 0; place < node->running; place++)
        if (m->freed[node_row * m->freed_columns + place] >= gpus)
            return most(now, m->ends[node_row * m->ends_columns + place]);
    return INFINITY;
}

/* Return when each node first has the GPUs free, worked out once for each number of GPUs between two starts. */
static const double *free_times(State *s, Slurm *m, int64_t gpus, double now) {
    double *times = m->free_time + gpus * m->free_time_columns;
    if (m->free_plan[gpus] == m->control->plans) return times;
    m->free_plan[gpus] = m->control->plans;
    for (int64_t node = 0; node < s->n_nodes; node++) times[node] = free_from(s, m, node, gpus, now);
    return times;
}

/* Bring the expected ends of all nodes up to date. */
static void plan(State *s, Slurm *m, double now) {
    m->control->plans++;
    for (int64_t node = 0; node < s->n_nodes; node++)
        /* Where limits are soft, ends depend on the instant. */
        if (m->stale[node] || m->control->soft_limits) plan_node(s, m, node, now);
}

/* Return the first instant from `at` on at which a node is not reserved for `limit_s`: `at`, or the end of a reservation. */
static inline double open_from(const Slurm *m, int64_t node_row, double at, double limit_s) {
    double from = at;
    for (int32_t item = m->first[node_row]; item != NONE; item = m->reservations[item].next) {
        const Reservation *reservation = &m->reservations[item];
        if (reservation->start_time > from + limit_s) break;
        if (reservation->end_time > from) from = reservation->end_time;
    }
    return from;
}

/* Return whether any picked node is reserved within `limit_s` of an instant. */
static bool meets_reservation(State *s, Slurm *m, double begin, double limit_s) {
    for (int64_t place = 0; place < s->tally->picked; place++)
        if (open_from(m, s->pick_nodes[place], begin, limit_s) > begin) return true;
    return false;
}

/* Return the first end of a reservation after an instant; infinity if there is none. */
static double next_slot(const Slurm *m, double at) {
    double following = INFINITY;
    for (int64_t item = 0; item < m->control->reservations; item++) {
        double when = m->reservations[item].end_time;
        if (at < when && when < following) following = when;
    }
    return following;
}

/* Return the number of GPUs of a node that are free at an instant. */
static int64_t free_at(const State *s, const Slurm *m, int64_t node_row, double when) {
    int32_t free_gpus = s->nodes[node_row].gpus_free;
    for (int64_t place = 0; place < s->nodes[node_row].running; place++)
        if (m->ends[node_row * m->ends_columns + place] <= when) free_gpus = m->freed[node_row * m->freed_columns + place];
    return free_gpus;
}

/* Pick nodes that are ready by an instant for a job; return whether they suffice. */
static bool fits_at(State *s, Slurm *m, int64_t row, int64_t gpus_each, int64_t wanted, double when, int64_t most_leaves) {
    const Job *job = &s->jobs[row];
    int64_t together = 0;
    for (int64_t node = 0; node < s->n_nodes; node++) {
        m->share[node] = 0;
        if (m->ready[node] <= when) {
            m->share[node] = (int32_t)(gpus_each > 0 ? gpus_each : least_of(free_at(s, m, node, when), job->gpus));
            together += m->share[node];
        }
    }
    if (together < job->gpus) return false;
    if (gpus_each > 0) return pick_alike(s, m, gpus_each, wanted, most_leaves);
    return pick_shares(s, m, row) && leaves_picked(s) <= most_leaves;
}

/* Return the `wanted`-th smallest number of an array, which is reordered; infinity if it holds fewer. */
static double nth_smallest(double *values, int64_t count, int64_t wanted) {
    if (count < wanted) return INFINITY;
    int64_t low = 0, high = count - 1, goal = wanted - 1;
    while (low < high) {
        double pivot = values[(low + high) / 2];
        int64_t left = low, right = high;
        while (left <= right) {
            while (values[left] < pivot) left++;
            while (values[right] > pivot) right--;
            if (left <= right) {
                double swapped = values[left];
                values[left++] = values[right];
                values[right--] = swapped;
            }
        }
        if (goal <= right) high = right;
        else if (goal >= left) low = left;
        else break;
    }
    return values[goal];
}

/* Return the last expected end up to a bound on nodes that can become ready; `now` if there is none. */
static double last_end(const State *s, const Slurm *m, double now, double bound) {
    double latest = now;
    for (int64_t node = 0; node < s->n_nodes; node++) {
        if (m->ready[node] == INFINITY) continue;
        const double *ends = m->ends + node * m->ends_columns;
        int64_t place = s->nodes[node].running;
        while (place > 0 && ends[place - 1] > bound) place--;
        if (place > 0) latest = most(latest, ends[place - 1]);
    }
    return latest;
}

/* Return the first expected end on nodes that can become ready; infinity if there is none. */
static double first_end(const State *s, const Slurm *m) {
    double first = INFINITY;
    for (int64_t node = 0; node < s->n_nodes; node++)
        if (m->ready[node] < INFINITY && s->nodes[node].running > 0) first = least(first, m->ends[node * m->ends_columns]);
    return first;
}

/* Return when a job fits the ready nodes if jobs end by their limits, group by group, and pick its nodes. */
static double first_group(State *s, Slurm *m, int64_t row, int64_t gpus_each, double now, int64_t most_leaves) {
    int64_t wanted = gpus_each == 0 ? 1 : s->jobs[row].nodes_min, ready = 0;
    double enough = INFINITY;
    for (int64_t node = 0; node < s->n_nodes; node++) {
        enough = least(enough, m->ready[node]);
        if (wanted > 1 && m->ready[node] < INFINITY) m->scratch[ready++] = m->ready[node];
    }
    if (wanted > 1) enough = nth_smallest(m->scratch, ready, wanted);
    if (enough == INFINITY) return INFINITY;
    if (enough <= now && fits_at(s, m, row, gpus_each, wanted, now, most_leaves)) return now;
    double first = first_end(s, m);
    if (first == INFINITY) first = now;
    double step = GROUP_S, bound = (floor(first / GROUP_S) + 2.0) * GROUP_S;
    for (;; bound += step, step *= 2.0) {
        if (bound < enough) continue;
        double when = last_end(s, m, now, bound);
        if (fits_at(s, m, row, gpus_each, wanted, when, most_leaves)) return when;
        if (last_end(s, m, now, INFINITY) <= bound) return INFINITY;
    }
}

/* Return the start that backfill expects for a job, and pick its nodes; infinity if beyond the window. */
static double earliest(State *s, Slurm *m, int64_t row, double now, double limit_s) {
    const Job *job = &s->jobs[row];
    int64_t gpus_each = per_node(s, row), most_leaves = s->n_leaves;
    if (job->switches > 0 && now < switch_wait_ends(s, m, row)) most_leaves = job->switches;
    /* With fewer nodes no group can suffice. */
    int64_t fewest = gpus_each > 0 ? job->nodes_min : parts_of(job->gpus, s->rules->most_gpus);
    double last = now + m->control->bf_window_s;
    if (gpus_each >= m->n_free_time) return INFINITY;
    const double *free_time = free_times(s, m, most_of(gpus_each, 1), now);
    for (int64_t node = 0; node < s->n_nodes; node++) {
        bool suits = job->gpu_type == NONE || job->gpu_type == s->nodes[node].gpu_type;
        m->open_time[node] = suits && free_time[node] < INFINITY ? -INFINITY : INFINITY;
    }
    for (double at = now; at <= last;) {
        int64_t open = 0, possible = 0;
        for (int64_t node = 0; node < s->n_nodes; node++) {
            if (m->open_time[node] < at) m->open_time[node] = open_from(m, node, at, limit_s);
            bool is_ready = m->open_time[node] == at;
            m->ready[node] = is_ready ? free_time[node] : INFINITY;
            open += is_ready;
        }
        if (open < fewest) {
            /* Slots before enough nodes are open lead nowhere. */
            for (int64_t node = 0; node < s->n_nodes; node++)
                if (m->open_time[node] < INFINITY) m->scratch[possible++] = m->open_time[node];
            at = nth_smallest(m->scratch, possible, fewest);
            continue;
        }
        double begin = first_group(s, m, row, gpus_each, now, most_leaves);
        if (begin == INFINITY) {
            at = next_slot(m, at);
            continue;
        }
        begin = most(begin, at);
        if (begin == at || !meets_reservation(s, m, begin, limit_s)) return begin <= last ? begin : INFINITY;
        at = begin;
    }
    return INFINITY;
}

/* Reserve the picked nodes as whole nodes for a job of the line. */
static void reserve(State *s, Slurm *m, double begin, double until) {
    Control *control = m->control;
    double resolution = control->bf_resolution_s;
    begin = floor(begin / resolution) * resolution;
    until = floor(until / resolution) * resolution;
    for (int64_t place = 0; place < s->tally->picked; place++) {
        int32_t node = s->pick_nodes[place], before = NONE, item = m->first[node];
        int32_t new_item = (int32_t)control->reservations++;
        while (item != NONE && m->reservations[item].start_time < begin) {
            before = item;
            item = m->reservations[item].next;
        }
        m->reservations[new_item] = (Reservation){.start_time = begin, .end_time = until, .next = item};
        if (before == NONE) m->first[node] = new_item;
        else m->reservations[before].next = new_item;
    }
}

/* Start every job of the line that delays no reservation of an earlier job.
 *
 * The pass ends when no later job can start now: their reservations would change nothing.
 */
static void backfill_pass(State *s, Slurm *m, double now) {
    Control *control = m->control;
    control->backfill_time = now;
    control->backfill_due_time = INFINITY;
    control->reservations = 0;
    control->passes++;
    for (int64_t node = 0; node < s->n_nodes; node++) m->first[node] = NONE;
    list_room(s, m);
    bool is_planned = false;
    int64_t place = 0, left = least_of(s->tally->pending, control->bf_depth); /* jobs still to be tested */
    for (;;) {
        while (left > 0 && !may_start(s, m, m->line[place + left - 1], now)) left--;
        if (left == 0) break;
        left--;
        int32_t row = m->line[place];
        double limit_s = planned_limit_s(m, &s->jobs[row]);
        if (may_start(s, m, row, now) && pick_now(s, m, row, now + limit_s) && !waits_for_switches(s, m, row, now)) {
            launch(s, m, place, now);
            list_room(s, m);
            is_planned = false;
            continue;
        }
        place++;
        if (control->reservations + s->n_nodes > m->n_reservations) continue;
        if (!is_planned) plan(s, m, now);
        is_planned = true;
        double begin = earliest(s, m, row, now, limit_s);
        if (begin < INFINITY) reserve(s, m, begin, begin + limit_s);
    }
    for (int64_t node = 0; node < s->n_nodes; node++) m->first[node] = NONE;
}
