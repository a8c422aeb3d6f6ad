/* Which submitted jobs can run: begin times, dependencies, and how many tasks of an array run at once.
 *
 * A job that cannot run yet is pending, but not in the line. slurmctld looks at such jobs only when one of its two
 * schedulers runs. Tasks of an array are jobs of their own, which stand in the line one after the other.
 */

/* Tasks of one array that backfill plans in one pass. */
enum { MOST_PLANNED_TASKS = 20 };

enum { MET, UNMET, NEVER };

static inline bool has_gate(const Slurm *m) { return m->n_gates > 0; }

/* Return the array of a job, or NULL. */
static inline TaskArray *array_of(const Slurm *m, int64_t row) {
    return has_gate(m) && m->gates[row].array != NONE ? &m->arrays[m->gates[row].array] : NULL;
}

/* Count a job that starts (1) or stops (-1), in its array and as a change of what others wait for. */
static inline void count_task(const Slurm *m, int64_t row, int32_t step) {
    TaskArray *array = array_of(m, row);
    m->control->changes++;
    if (array) array->running += step;
}

/* Return whether the job is a task of an array of which no more can run. */
static inline bool at_array_limit(const Slurm *m, int64_t row) {
    const TaskArray *array = array_of(m, row);
    return array && array->limit > 0 && array->running >= array->limit;
}

/* Count a task as planned in the present pass of backfill; return false if no more of its array are planned.
 *
 * The limit of the array does not count here: more of its tasks can be planned than will run at once.
 */
static bool plans_task(const Slurm *m, int64_t row) {
    TaskArray *array = array_of(m, row);
    if (!array) return true;
    if (array->planned_pass != m->control->passes) array->planned = 0;
    array->planned_pass = m->control->passes;
    return array->planned++ < MOST_PLANNED_TASKS;
}

/* Return how many places of the line backfill looks at for its number of tests; tasks that have to wait are no test. */
static int64_t backfill_reach(const State *s, const Slurm *m) {
    int64_t place = 0;
    if (!has_gate(m)) return least_of(m->control->lined, m->control->bf_depth);
    for (int64_t tests = 0; place < m->control->lined && tests < m->control->bf_depth; place++)
        tests += !at_array_limit(m, row_of(s, m, m->line[place]));
    return place;
}

/* Return whether a singleton has to wait: for jobs of its name and user that run or were submitted before it. */
static bool waits_for_turn(const State *s, const Slurm *m, int64_t row, const Condition *condition) {
    for (int64_t at = condition->first; at < condition->first + condition->awaited; at++) {
        int32_t other = m->awaited[at];
        int8_t phase = s->jobs[other].phase;
        if (other != row && (phase == RUNNING || (phase == PENDING && other < row))) return true;
    }
    return false;
}

/* Return the state of a condition on other jobs; `due_time` gets when time alone will meet it. */
static int64_t test_awaited(const State *s, const Slurm *m, const Condition *condition, double now, double *due_time) {
    bool is_known = false, have_started = true, are_over = true, have_succeeded = true;
    double latest = -INFINITY;
    for (int64_t at = condition->first; at < condition->first + condition->awaited; at++) {
        const Job *other = &s->jobs[m->awaited[at]];
        /* A job that slurmctld does not know holds up no other. */
        if (other->phase == FUTURE || other->end == END_IMPOSSIBLE) continue;
        is_known = true;
        have_started &= other->phase != PENDING && other->end != END_DEPENDENCY;
        are_over &= other->end == END_FINISHED || other->end == END_TIME_LIMIT;
        have_succeeded &= other->end == END_FINISHED;
        latest = most(latest, other->start_time);
    }
    if (!is_known) return MET;
    if (condition->kind == AWAIT_START) {
        if (!have_started) return UNMET;
        if (latest + condition->delay_s > now) *due_time = latest + condition->delay_s;
        return latest + condition->delay_s > now ? UNMET : MET;
    }
    if (!are_over) return UNMET;
    if (condition->kind == AWAIT_END) return MET;
    return have_succeeded == (condition->kind == AWAIT_SUCCESS) ? MET : NEVER;
}

/* Return the state of a condition; one that depends on no time is tested once between two changes. */
static int64_t test_condition(const State *s, const Slurm *m, int64_t row, Condition *condition, double now, double *due_time) {
    if (condition->kind == AWAIT_TURN) return waits_for_turn(s, m, row, condition) ? UNMET : MET;
    if (condition->kind == AWAIT_START) return test_awaited(s, m, condition, now, due_time);
    if (condition->tested_change != m->control->changes) {
        condition->found = (int32_t)test_awaited(s, m, condition, now, due_time);
        condition->tested_change = m->control->changes;
    }
    return condition->found;
}

/* Return the state of all conditions of a job: one of them has to be met, or every one. */
static int64_t test_gate(const State *s, const Slurm *m, int64_t row, double now, double *due_time) {
    const Gate *gate = &m->gates[row];
    bool is_open = false, never = false, waits = false;
    for (int64_t at = gate->first; at < gate->first + gate->conditions; at++) {
        int64_t found = test_condition(s, m, row, &m->conditions[at], now, due_time);
        is_open |= found == MET;
        never |= found == NEVER;
        waits |= found == UNMET;
    }
    if (gate->needs_one) return is_open ? MET : waits ? UNMET : NEVER;
    return never ? NEVER : waits ? UNMET : MET;
}

/* Put a pending job into the line if it can run by now; return MET if so, else why not. */
static int64_t admit(State *s, Slurm *m, int64_t row, double now) {
    Gate *gate = &m->gates[row];
    double due_time = INFINITY;
    int64_t found = test_gate(s, m, row, now, &due_time);
    /* A begin time that passes while the job still depends on another is forgotten. */
    if (found == UNMET && gate->begin_time < now) gate->begin_time = 0.0;
    if (found == MET && gate->begin_time > now) found = UNMET;
    if (gate->begin_time > now) due_time = least(due_time, gate->begin_time);
    if (found == UNMET) m->control->eligible_due_time = least(m->control->eligible_due_time, due_time);
    if (found != MET) return found;
    if (!m->control->accrues_always)
        m->eligible_time[row] = gate->begin_time > 0.0 ? most(gate->begin_time, s->jobs[row].submit_time) : now;
    prioritise(s, m, row, now);
    insert(s, m, row);
    return MET;
}

/* End a job that can never become eligible; in Slurm it stays pending, and others that wait for it do too. */
static void give_up(State *s, int64_t row) {
    s->jobs[row].phase = ENDED;
    s->jobs[row].end = END_DEPENDENCY;
    s->jobs[row].watch_time = INFINITY;
    set_timer(s, row);
    s->tally->ended++;
}

/* Put the waiting jobs that can run by now into the line. */
static void admit_waiting(State *s, Slurm *m, double now) {
    int64_t kept = 0, waiting = s->tally->waiting;
    m->control->eligible_due_time = INFINITY;
    for (int64_t place = 0; place < waiting; place++) {
        int32_t row = m->waiting[place];
        int64_t found = admit(s, m, row, now);
        if (found == NEVER) give_up(s, row);
        else if (found == UNMET) m->waiting[kept++] = row;
    }
    s->tally->waiting = kept;
}

/* End all waiting jobs, once nothing else will happen. */
static void give_up_waiting(State *s, const Slurm *m) {
    for (int64_t place = 0; place < s->tally->waiting; place++) give_up(s, m->waiting[place]);
    s->tally->waiting = 0;
}
