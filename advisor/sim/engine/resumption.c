/* The start of a run in the middle: jobs that run and wait already, as a snapshot shows them. */

/* More points than a nice can take away, so that no priority is cut off at 1. */
#define AMPLE_POINTS 8589934592.0

/* Return by how much the priority that a job has differs from the formula at its calculation.
 *
 * A priority that is cut off at 1 in Slurm, as it is by the formula, shows no difference.
 */
EXPORT double points_beyond(State *s, Slurm *m, int64_t row, double priority, double calculated) {
    m->points[row] = 0.0;
    if (priority_of(s, m, row, calculated) == priority) return 0.0;
    m->points[row] = AMPLE_POINTS;
    return priority + AMPLE_POINTS - priority_of(s, m, row, calculated);
}

/* Keep by how much the priority of each job in the line differs from the formula at its last calculation. */
static void keep_points(State *s, Slurm *m, double now) {
    for (int64_t place = 0; place < m->control->lined; place++) {
        int32_t row = m->line[place];
        double calculated = least(now, most(m->control->calc_time, m->eligible_time[row]));
        m->points[row] = points_beyond(s, m, row, s->jobs[row].priority, calculated);
    }
}

/* Return when the next waiting job becomes eligible by time alone. */
static double next_eligible(State *s, const Slurm *m, double now) {
    double first = INFINITY;
    for (int64_t place = 0; place < s->tally->waiting; place++) {
        int32_t row = m->waiting[place];
        double due_time = INFINITY, begin_time = m->gates[row].begin_time;
        test_gate(s, m, row, now, &due_time);
        if (begin_time > now) due_time = least(due_time, begin_time);
        first = least(first, due_time);
    }
    return first;
}

/* Complete the state of slurmctld from the jobs that run, wait and stand in the line; once for a snapshot. */
EXPORT void take_up(State *s, Slurm *m, double now) {
    m->control->departures = 0;
    for (int64_t place = 0; place < s->tally->running; place++) {
        int32_t row = s->running[place];
        TaskArray *array = array_of(m, row);
        if (array) array->running++;
        add_departure(s, m, row, now);
    }
    keep_points(s, m, now);
    m->control->eligible_due_time = next_eligible(s, m, now);
}

/* Set when a running job ends: after its whole run time, counted from its start, though not before now. */
static void resume_running(State *s, int64_t row, double now) {
    Job *job = &s->jobs[row];
    job->booked_time = job->progress_time = job->since_time;
    job->rate = rate_of(s, row);
    job->finish_time = most(now, job->since_time + job->left_s / job->rate);
    set_timer(s, row);
}

/* Put the jobs of several partitions into the line of the others, too, where their priorities differ by the factor. */
static void line_up_others(State *s, Slurm *m, double now) {
    int64_t lined = m->control->lined;
    for (int64_t place = 0; place < lined && m->n_extras > 0; place++) {
        int32_t row = m->line[place];
        double first = partition_priority(s, m, row, m->partition[row], now);
        for (int32_t entry = next_entry(s, m, row); entry != NONE; entry = next_entry(s, m, entry)) {
            Entry *other = &m->extras[entry - s->n_jobs];
            other->priority = s->jobs[row].priority + partition_priority(s, m, row, other->partition, now) - first;
            m->line[m->control->lined++] = entry;
        }
    }
}

/* Set the timers of all jobs that run or wait, from their run times, and sort the line.
 *
 * Allocations and phases are laid out; no job has a timer yet.
 */
EXPORT void resume(State *s, Slurm *m, double now) {
    s->tally->now = now;
    s->tally->timers = 0;
    for (int64_t row = 0; row < s->n_jobs; row++) s->jobs[row].heap_slot = NONE;
    for (int64_t place = 0; place < s->tally->running; place++) count_as_sender(s, s->running[place], 1);
    for (int64_t place = 0; place < s->tally->running; place++) resume_running(s, s->running[place], now);
    for (int64_t place = 0; place < m->control->lined; place++)
        if (s->jobs[m->line[place]].switches > 0) watch_switches(s, m, m->line[place], now);
    for (int64_t place = 0; place < s->tally->waiting; place++)
        if (s->jobs[m->waiting[place]].switches > 0) watch_switches(s, m, m->waiting[place], now);
    line_up_others(s, m, now);
    sort_line(s, m);
}
