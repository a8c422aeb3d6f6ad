/* A whole line sorted by a key every so often: the most that a change of order by `scontrol update Nice=` can bring. */

/* The distance of two jobs in points of priority: no age or fair-share moves a job past its neighbour between two sorts. */
#define SPACING 20000.0
/* What a nice can hold, with room for the points of the other factors. */
#define LARGEST_NICE 2.0e9

/* Return the weight of each association by its fair-share factor; factors change with the priorities alone. */
static void weigh(const Slurm *m, Order *order) {
    if (order->settings->weighed_time == m->control->calc_time) return;
    order->settings->weighed_time = m->control->calc_time;
    for (int64_t row = 0; row < m->n_associations; row++)
        order->weight[row] = pow(10.0, order->settings->share_exponent * m->associations[row].factor);
}

/* Set the key of each pending job: its GPU-time over its weight, which grows with the time that it has waited. */
static void set_keys(State *s, Slurm *m, Order *order, double now) {
    weigh(m, order);
    double ageing_s = order->settings->ageing_s;
    for (int64_t place = 0; place < m->control->lined; place++) {
        int32_t row = m->line[place];
        if (row >= s->n_jobs) continue; /* a job has one entry that is its row */
        double waited = ageing_s == INFINITY ? 0.0 : (now - s->jobs[row].submit_time) / ageing_s;
        order->key[row] = order->gpu_s[row] / (order->weight[m->association[row]] * (1.0 + waited));
    }
}

/* Return whether one of two places comes before the other by its key; of equal keys the first place does. */
static inline bool comes_first(const double *keys, int32_t one, int32_t other) {
    return keys[one] < keys[other] || (keys[one] == keys[other] && one < other);
}

/* Sort places by their keys, by merging; those that are nearly in order take little. */
static void sort_by(const double *keys, int32_t *places, int32_t *spare, int64_t count) {
    if (count < 2) return;
    int64_t middle = count / 2, left = 0, right = middle, at = 0;
    sort_by(keys, places, spare, middle);
    sort_by(keys, places + middle, spare, count - middle);
    if (!comes_first(keys, places[middle], places[middle - 1])) return;
    memcpy(spare, places, (size_t)middle * sizeof *places);
    while (left < middle)
        if (right < count && comes_first(keys, places[right], spare[left])) places[at++] = places[right++];
        else places[at++] = spare[left++];
}

/* Return whether an entry of the line stands rightly before the next: within a tier, keys order the jobs. */
static bool are_in_order(const State *s, const Slurm *m, const Order *order, int32_t one, int32_t other) {
    int32_t tier = m->partitions[partition_of(s, m, one)].tier;
    if (tier != m->partitions[partition_of(s, m, other)].tier) return true;
    int32_t row = row_of(s, m, one), other_row = row_of(s, m, other);
    return row == other_row || comes_first(order->key, row, other_row);
}

/* Put the jobs of the line into its first places by their keys; return their number. */
static int64_t sort_jobs(State *s, Slurm *m, const Order *order) {
    int64_t count = 0;
    for (int64_t place = 0; place < m->control->lined; place++)
        if (m->line[place] < s->n_jobs) m->line[count++] = m->line[place];
    sort_by(order->key, m->line, m->spare, count);
    return count;
}

/* Complete a line of jobs with their entries for other partitions, and sort it by tiers and priorities. */
static void restore_entries(State *s, Slurm *m, int64_t count) {
    int64_t lined = count;
    for (int64_t place = 0; place < count; place++)
        for (int32_t entry = m->line[place]; (entry = next_entry(s, m, entry)) != NONE;) m->line[lined++] = entry;
    sort_line(s, m);
}

/* Sort the line by the keys and give each job the nice that keeps it there; tiers of partitions still come first. */
static void order_line(State *s, Slurm *m, Order *order, double now) {
    int64_t lined = m->control->lined, place = 1;
    set_keys(s, m, order, now);
    while (place < lined && are_in_order(s, m, order, m->line[place - 1], m->line[place])) place++;
    if (place >= lined) return;
    int64_t jobs = sort_jobs(s, m, order);
    double spacing = least(SPACING, LARGEST_NICE / (double)jobs);
    for (place = 0; place < jobs; place++) {
        int32_t row = m->line[place];
        s->jobs[row].nice = 0;
        s->jobs[row].nice = (int32_t)(priority_of(s, m, row, now) - floor((double)(jobs - place) * spacing));
        prioritise(s, m, row, now);
    }
    if (m->n_partitions > 1) restore_entries(s, m, jobs);
    ask_for_pass(m, now);
}

/* Return the first cycle after an instant. */
static double cycle_after(double now, double every_s) {
    /* The quotient alone can round up to a whole number that is not reached, and the product down to the instant. */
    double cycles = (now - fmod(now, every_s)) / every_s, whole = floor(cycles);
    double cycle_time = ((cycles - whole > 0.5 ? whole + 1.0 : whole) + 1.0) * every_s;
    return cycle_time > now ? cycle_time : cycle_time + every_s;
}

/* Run as `run_slurm` does, and sort the line every `every_s` of the trace's clock. */
EXPORT int64_t run_ordered(State *s, Slurm *m, Order *order, double until) {
    double every_s = order->settings->every_s;
    for (;;) {
        double cycle_time = cycle_after(s->tally->now, every_s);
        int64_t stopped = run_slurm(s, m, least(until, cycle_time));
        if (stopped != PAUSED || until < cycle_time) return stopped;
        order_line(s, m, order, cycle_time);
    }
}
