/* Backfill as in slurmctld: every tested job reserves whole nodes, and no job delays a reservation before it.
 *
 * Every pass makes its reservations in the order of the line. Running jobs are expected to end at their limits. Their
 * ends are examined in groups that grow with the distance, as in slurmctld; docs/fidelity.md has the observations.
 */

#define GROUP_S 30.0

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

/* Return when a running job is expected to end; slurmctld keeps starts in whole seconds. */
static double expected_end(const State *s, const Slurm *m, int64_t row, double now) {
    const Job *job = &s->jobs[row];
    double since = floor(job->since_time), hard = since + least(job->limit_s, YEAR_S);
    if (m->n_groups > 0) hard = least(hard, floor(m->grace_end_time[row]));
    if (!m->control->soft_limits || job->soft_limit_s <= 0.0) return hard;
    double soft = since + job->soft_limit_s;
    /* Past its soft limit a job is planned with half of what is left. */
    return now < soft ? least(hard, soft) : now + 0.5 * (hard - now);
}

static inline bool departs_before(Departure one, Departure other) {
    return one.end_time < other.end_time || (one.end_time == other.end_time && one.row < other.row);
}

/* Add a started job to the departures, which are sorted by expected end. */
static void add_departure(State *s, Slurm *m, int64_t row, double now) {
    const Job *job = &s->jobs[row];
    Departure new_one = {
        .end_time = expected_end(s, m, row, now), .pool = job->pool, .row = (int32_t)row, .span = job->span,
    };
    int64_t low = 0, high = m->control->departures;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (departs_before(m->departures[middle], new_one)) low = middle + 1;
        else high = middle;
    }
    memmove(m->departures + low + 1, m->departures + low, (size_t)(m->control->departures - low) * sizeof new_one);
    m->departures[low] = new_one;
    m->control->departures++;
}

/* Remove a job that stops from the departures. */
static void remove_departure(Slurm *m, int64_t row) {
    int64_t place = 0, last = --m->control->departures;
    while (m->departures[place].row != row) place++;
    memmove(m->departures + place, m->departures + place + 1, (size_t)(last - place) * sizeof *m->departures);
}

/* Compute the expected ends again and sort the departures by them; soft limits let ends move. */
static void sort_departures(State *s, Slurm *m, double now) {
    for (int64_t place = 0; place < m->control->departures; place++) {
        Departure moved = m->departures[place];
        moved.end_time = expected_end(s, m, moved.row, now);
        int64_t at = place;
        for (; at > 0 && departs_before(moved, m->departures[at - 1]); at--) m->departures[at] = m->departures[at - 1];
        m->departures[at] = moved;
    }
}

/* Start the job at a place of the line on the picked nodes; its other entries stay until the pass has ended. */
static void launch(State *s, Slurm *m, int64_t place, double now) {
    int32_t entry = m->line[place], row = row_of(s, m, entry);
    strike(s, m, place);
    s->jobs[row].watch_time = INFINITY;
    start(s, row, now);
    m->began[row] = entry;
    if (m->n_groups > 0) m->grace_end_time[row] = INFINITY;
    count_run(s, m, row, entry, 1.0);
    add_departure(s, m, row, now);
    count_task(m, row, 1);
}

/* Forget what was planned for a running job that is about to stop. */
static void forget_plan(Slurm *m, int64_t row) {
    remove_departure(m, row);
    count_task(m, row, -1);
}

/* List the nodes that could take a job: those with free GPUs, or with free CPUs where jobs ask for CPUs alone. */
static void list_room(State *s, Slurm *m) {
    m->control->room = 0;
    for (int32_t row = 0; row < s->n_nodes; row++) {
        const Node *node = &s->nodes[row];
        bool has_room = node->gpus_free > 0 || (s->rules->cpus_alone && node->cpus_free > 0);
        if (has_room && node->is_up) m->room[m->control->room++] = row;
    }
}

/* Return whether the reservation that a job names is active; true for a job that names none. */
static inline bool is_admitted(const State *s, const Job *job, double now) {
    if (job->booking == NONE) return true;
    const Booking *booking = &s->bookings[job->booking];
    return booking->start_time <= now && now <= booking->end_time;
}

/* Return the place of what a job asks for in the partition at hand; NONE for a job whose request was changed. */
static inline int64_t shape_of(const Slurm *m, const Job *job) {
    if (job->shape == NONE || !m->control->is_split) return job->shape;
    return job->shape * m->n_partitions + m->control->partition;
}

/* Return whether a job could start now in the partition at hand; one that cannot, cannot later in the same pass.
 *
 * Of jobs that ask alike, those with a longer limit cannot start where one could not.
 */
static bool may_start(State *s, Slurm *m, int64_t row, double now) {
    const Job *job = &s->jobs[row];
    if (job->gpus > s->tally->gpus_free || at_array_limit(m, row) || !is_admitted(s, job, now)) return false;
    double limit_s = planned_limit_s(m, job), until = now + limit_s;
    int64_t shape = shape_of(m, job);
    if (shape != NONE && m->refused_pass[shape] == m->control->passes && limit_s >= m->refused_s[shape]) return false;
    int64_t part = part_of(job), gpus = 0, nodes = 0;
    for (int64_t place = 0; place < m->control->room; place++) {
        int32_t node = m->room[place];
        if (part != NONE) nodes += is_open(s, m, job, node, part, until);
        else gpus += usable_gpus_until(s, m, job, node, until);
        if (part != NONE ? nodes >= job->nodes_min : gpus >= job->gpus) return true;
    }
    if (shape != NONE) {
        m->refused_pass[shape] = m->control->passes;
        m->refused_s[shape] = limit_s;
    }
    return false;
}

/* No departure makes a node ready; before the first, what is free now suffices. */
#define NEVER INT32_MAX
#define AT_ONCE -1

/* List for each node which departures free something on it, and what is free from each of them on. */
static void list_freed(State *s, Slurm *m) {
    int32_t *listed = m->share; /* by node */
    memset(listed, 0, (size_t)s->n_nodes * sizeof *listed);
    for (int64_t place = 0; place < m->control->departures; place++) {
        Departure ending = m->departures[place];
        for (int64_t at = ending.pool; at < ending.pool + ending.span; at++) {
            int32_t node = s->held_nodes[at], item = listed[node]++;
            const Node *here = &s->nodes[node];
            Portion held = portion_of(&s->jobs[ending.row], here, s->held_gpus[at]);
            int32_t *freed = m->freed + node * m->freed_columns + item;
            m->freeing[node * m->freeing_columns + item] = (int32_t)place;
            freed[0] = (int32_t)held.gpus + (item > 0 ? freed[-1] : here->gpus_free);
            if (!s->rules->binds) continue;
            int32_t *cpus = m->freed_cpus + node * m->freed_cpus_columns + item;
            int64_t *mib = m->freed_mib + node * m->freed_mib_columns + item;
            cpus[0] = (int32_t)held.cpus + (item > 0 ? cpus[-1] : here->cpus_free);
            mib[0] = held.memory_mib + (item > 0 ? mib[-1] : here->memory_free_mib);
        }
    }
}

/* Bring the expected ends up to date. */
static void plan(State *s, Slurm *m, double now) {
    m->control->plans++;
    if (m->control->soft_limits) sort_departures(s, m, now);
    list_freed(s, m);
}

/* Return what is free on a node from its departure of a rank on; before the first of them at -1. */
static inline Portion free_after(const State *s, const Slurm *m, int64_t node_row, int64_t rank) {
    const Node *node = &s->nodes[node_row];
    if (rank < 0) return (Portion){node->gpus_free, node->cpus_free, node->memory_free_mib};
    Portion free = {.gpus = m->freed[node_row * m->freed_columns + rank]};
    if (s->rules->binds) {
        free.cpus = m->freed_cpus[node_row * m->freed_cpus_columns + rank];
        free.memory_mib = m->freed_mib[node_row * m->freed_mib_columns + rank];
    }
    return free;
}

/* Return the first departure from which on a node has the GPUs free, ignoring reservations and classes. */
static int32_t freed_by(const State *s, const Slurm *m, int64_t node_row, int64_t gpus) {
    const Node *node = &s->nodes[node_row];
    if (!node->is_up || node->gpus < gpus) return NEVER;
    if (node->gpus_free >= gpus) return AT_ONCE;
    const int32_t *freed = m->freed + node_row * m->freed_columns;
    for (int64_t rank = 0; rank < node->running; rank++)
        if (freed[rank] >= gpus) return m->freeing[node_row * m->freeing_columns + rank];
    return NEVER;
}

/* Return the same for all that a job asks for beside the GPUs. */
static int32_t portion_freed_by(const State *s, const Slurm *m, const Job *job, int64_t node_row, int64_t gpus) {
    const Node *node = &s->nodes[node_row];
    Portion whole = {node->gpus, node->cpus, node->memory_mib};
    if (!node->is_up || !is_within(asked_of(job, gpus), whole)) return NEVER;
    Portion wanted = portion_of(job, node, gpus);
    for (int64_t rank = -1; rank < node->running; rank++)
        if (is_within(wanted, free_after(s, m, node_row, rank)))
            return rank < 0 ? AT_ONCE : m->freeing[node_row * m->freeing_columns + rank];
    return NEVER;
}

/* Sort the nodes that can become ready by the departure that makes them so; return how many there are. */
static int64_t sort_nodes(const State *s, Slurm *m, const int32_t *freed_by_node, int32_t *order) {
    int64_t departures = m->control->departures, ready = 0;
    int32_t *begins = m->begins; /* in the order, of the nodes of each departure */
    memset(begins, 0, (size_t)(departures + 2) * sizeof *begins);
    for (int64_t node = 0; node < s->n_nodes; node++)
        if (freed_by_node[node] != NEVER) {
            begins[freed_by_node[node] + 2]++;
            ready++;
        }
    for (int64_t place = 1; place < departures + 2; place++) begins[place] += begins[place - 1];
    for (int32_t node = 0; node < s->n_nodes; node++)
        if (freed_by_node[node] != NEVER) order[begins[freed_by_node[node] + 1]++] = node;
    return ready;
}

/* Return when a departure lets a job start; infinity for NEVER. */
static inline double time_of(const Slurm *m, int64_t departure, double now) {
    if (departure == NEVER) return INFINITY;
    return departure == AT_ONCE ? now : most(now, m->departures[departure].end_time);
}

/* Work out when each node has what a job asks for, once for each request between two starts; return its row.
 *
 * Where nothing but GPUs can bind, a request is a number of GPUs, else the shape of a job.
 */
static int64_t sort_request(State *s, Slurm *m, const Job *job, int64_t gpus, double now) {
    Control *control = m->control;
    int64_t row = s->rules->binds ? 0 : gpus;
    bool is_known = m->free_plan[row] == control->plans;
    if (s->rules->binds) {
        is_known = is_known && job->shape != NONE && job->shape == control->free_shape;
        control->free_shape = job->shape;
    }
    if (is_known) return row;
    m->free_plan[row] = control->plans;
    int32_t *freed = m->freed_by + row * m->freed_by_columns;
    double *free_time = m->free_time + row * m->free_time_columns;
    for (int64_t node = 0; node < s->n_nodes; node++) {
        freed[node] = s->rules->binds ? portion_freed_by(s, m, job, node, gpus) : freed_by(s, m, node, gpus);
        free_time[node] = time_of(m, freed[node], now);
    }
    m->free_nodes[row] = sort_nodes(s, m, freed, m->free_order + row * m->free_order_columns);
    return row;
}

/* A search for nodes that are open to a job for its run time from an instant on. */
typedef struct {
    const Job *job;
    const int32_t *freed_by; /* the departure from which on each node has enough free */
    const double *free_time; /* when that is */
    const int32_t *order;    /* the nodes that ever have, by that departure */
    int64_t nodes;           /* of this order */
    int64_t examined;        /* of these */
    int64_t found;           /* of these, nodes that are open: they stand in `ready` */
    int64_t part;            /* GPUs on every node; NONE if that is left open */
    int64_t wanted;          /* nodes that are needed at least; 1 if the parts are open */
    int64_t fewest;          /* nodes without which no parts suffice */
    int64_t most_leaves;
    double at;
    double limit_s;
    double soonest; /* no start before it */
} Search;

/* Find the first instant from that of a search on at which a node is not reserved for others for `limit_s`.
 *
 * It is that instant, or the end of a reservation. The start of the next reservation is kept too.
 */
static inline void open_from(const Slurm *m, const Search *search, int64_t node_row, double *time, double *next) {
    double from = search->at, until = INFINITY;
    for (int32_t item = m->first[node_row]; item != NONE; item = m->reservations[item].next) {
        const Reservation *reservation = &m->reservations[item];
        if (reservation->start_time > from + search->limit_s) {
            until = reservation->start_time;
            break;
        }
        if (reservation->end_time > from && keeps_away(reservation, search->job)) from = reservation->end_time;
    }
    time[node_row] = from;
    next[node_row] = until;
}

/* Work out from when on nodes are open for the run time of a search that begins now.
 *
 * Of what a pass worked out for this run time, only what was reserved since changes.
 */
static void open_nodes(const State *s, Slurm *m, const Search *search) {
    const Control *control = m->control;
    int64_t slot = (int64_t)(search->limit_s / 60.0) % m->n_openings;
    Openings *kept = &m->openings[slot];
    double *time = m->kept_time + slot * m->kept_time_columns, *next = m->kept_until + slot * m->kept_until_columns;
    bool is_known = kept->pass == control->passes && kept->limit_s == search->limit_s && s->n_bookings == 0;
    for (int64_t item = kept->reservations; is_known && item < control->reservations; item++)
        open_from(m, search, m->reservations[item].node, time, next);
    for (int64_t node = 0; !is_known && node < s->n_nodes; node++) open_from(m, search, node, time, next);
    *kept = (Openings){.limit_s = search->limit_s, .pass = control->passes, .reservations = control->reservations};
    memcpy(m->open_time, time, (size_t)s->n_nodes * sizeof *time);
    memcpy(m->open_until, next, (size_t)s->n_nodes * sizeof *next);
    bool suits_all = !control->is_split && search->job->node_class == NONE;
    for (int64_t node = 0; !(suits_all && search->nodes == s->n_nodes) && node < s->n_nodes; node++) {
        bool suits = can_use(m, node) && role_of(s, search->job, node) != CLOSED;
        if (!suits || search->freed_by[node] == NEVER) m->open_time[node] = INFINITY;
    }
}

/* Return from when on a node is open, at the instant of a search or later; infinity for one that does not suit the job. */
static inline double opening(Slurm *m, const Search *search, int64_t node) {
    if (m->open_time[node] < search->at) {
        if (m->open_until[node] > search->at + search->limit_s) m->open_time[node] = search->at;
        else open_from(m, search, node, m->open_time, m->open_until);
    }
    return m->open_time[node];
}

/* Return whether a node is open from the instant of a search on. */
static inline bool is_ready(Slurm *m, const Search *search, int64_t node) { return opening(m, search, node) == search->at; }

/* Find open nodes until there are `wanted`, and all that have enough free after a departure. */
static void find_ready(Slurm *m, Search *search, int64_t wanted, int64_t departure) {
    for (; search->examined < search->nodes; search->examined++) {
        int32_t node = search->order[search->examined];
        if (search->found >= wanted && search->freed_by[node] > departure) return;
        if (is_ready(m, search, node)) m->ready[search->found++] = node;
    }
}

/* Round an instant down to the resolution of reservations. */
static inline double on_slot(const Slurm *m, double at) {
    return floor(at / m->control->bf_resolution_s) * m->control->bf_resolution_s;
}

/* Return the end of a reservation as it is kept: later releases round it up. */
static inline double end_slot(const Slurm *m, double begin, double limit_s) {
    if (m->control->by_slot) return ceil((floor(begin) + limit_s) / m->control->bf_resolution_s) * m->control->bf_resolution_s;
    return on_slot(m, begin + limit_s);
}

/* Return whether any picked node is reserved for others between two instants. */
static bool meets_reservation(State *s, Slurm *m, const Job *job, double begin, double until) {
    for (int64_t place = 0; place < s->tally->picked; place++)
        for (int32_t item = m->first[s->pick_nodes[place]]; item != NONE; item = m->reservations[item].next) {
            const Reservation *reservation = &m->reservations[item];
            if (!keeps_away(reservation, job)) continue;
            if (reservation->start_time < until && begin < reservation->end_time) return true;
        }
    return false;
}

/* Return the place of the first of some sorted instants after an instant, or at it. */
static int64_t place_in(const double *instants, int64_t count, double at, bool is_after) {
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (instants[middle] < at || (is_after && instants[middle] == at)) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Return the place of the first slot after an instant, or at it. */
static int64_t slot_place(const Slurm *m, double at, bool is_after) {
    return place_in(m->slots, m->control->slots, at, is_after);
}

/* Return when the first reserved node after an instant is open again, node by node; infinity if there is none. */
static double next_opening(const State *s, const Slurm *m, const Job *job, double at) {
    double following = INFINITY;
    for (int64_t node = 0; node < s->n_nodes; node++) {
        double until = -INFINITY;
        for (int32_t item = m->first[node]; item != NONE; item = m->reservations[item].next) {
            const Reservation *reservation = &m->reservations[item];
            if (!keeps_away(reservation, job)) continue;
            /* A node that is reserved again at once does not open. */
            if (reservation->start_time > until && until > at) break;
            until = most(until, reservation->end_time);
        }
        if (until > at) following = least(following, until);
    }
    return following;
}

/* Return the same; without bookings from the slots. */
static double next_slot(const State *s, const Slurm *m, const Job *job, double at) {
    if (s->n_bookings > 0) return next_opening(s, m, job, at);
    int64_t place = slot_place(m, at, true);
    return place < m->control->slots ? m->slots[place] : INFINITY;
}

/* Return how many departures of a node precede or are the given one. */
static inline int64_t departed(const State *s, const Slurm *m, int64_t node, int64_t departure) {
    const int32_t *freeing = m->freeing + node * m->freeing_columns;
    int64_t rank = 0;
    while (rank < s->nodes[node].running && freeing[rank] <= departure) rank++;
    return rank;
}

/* Return the number of GPUs that a node can give a gang after a departure, no more than it requests. */
static int64_t usable_freed(const State *s, const Slurm *m, const Job *job, int64_t node_row, int64_t departure) {
    Portion free = free_after(s, m, node_row, departed(s, m, node_row, departure) - 1);
    int64_t gpus = least_of(free.gpus, job->gpus);
    if (!s->rules->binds) return gpus;
    while (gpus > 0 && !is_within(portion_of(job, &s->nodes[node_row], gpus), free)) gpus--;
    return gpus;
}

/* Pick the first node under the leaf with the fewest nodes that are ready after a departure. */
static bool fits_one(State *s, Slurm *m, const Search *search, int64_t departure) {
    int32_t *usable = m->share; /* by leaf */
    int64_t ready = 0;
    memset(usable, 0, (size_t)s->n_leaves * sizeof *usable);
    for (; ready < search->found && search->freed_by[m->ready[ready]] <= departure; ready++)
        usable[s->nodes[m->ready[ready]].leaf]++;
    if (ready == 0) return false;
    int32_t best = m->ready[0];
    bool ignores_leaves = takes_first(m, search->job);
    for (int64_t place = 1; place < ready; place++) {
        int32_t node = m->ready[place];
        if (ignores_leaves) {
            best = (int32_t)least_of(best, node);
            continue;
        }
        int32_t mine = usable[s->nodes[node].leaf], fewest = usable[s->nodes[best].leaf];
        /* Leaves stand in the order of their nodes. */
        if (mine < fewest || (mine == fewest && node < best)) best = node;
    }
    s->tally->picked = 0;
    add_to_pick(s, best, search->part);
    return true;
}

/* Pick nodes that are ready for a job after a departure; return whether they suffice. */
static bool fits_freed(State *s, Slurm *m, int64_t row, Search *search, int64_t departure) {
    const Job *job = search->job;
    int64_t together = 0, part = search->part;
    find_ready(m, search, 0, departure);
    bool is_plain = !s->rules->weighs && job->required == 0;
    if (part != NONE && search->wanted == 1 && is_plain) return fits_one(s, m, search, departure);
    memset(m->share, 0, (size_t)m->n_share * sizeof *m->share);
    for (int64_t place = 0; place < search->found && search->freed_by[m->ready[place]] <= departure; place++) {
        int32_t node = m->ready[place];
        m->share[node] = part != NONE ? 1 : (int32_t)usable_freed(s, m, job, node, departure);
        together += m->share[node];
    }
    if (together < (part != NONE ? search->wanted : job->gpus)) return false;
    if (part != NONE) return pick_parts(s, m, job, part, search->wanted, search->most_leaves);
    return pick_open(s, m, row) && leaves_picked(s) <= search->most_leaves;
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

/* Return whether a departure frees a node that can become ready. */
static inline bool frees_ready(const State *s, Slurm *m, const Search *search, int64_t departure) {
    Departure ending = m->departures[departure];
    for (int64_t at = ending.pool; at < ending.pool + ending.span; at++)
        if (is_ready(m, search, s->held_nodes[at])) return true;
    return false;
}

/* Return the first departure from a place on that frees a node which can become ready. */
static int64_t next_departure(const State *s, Slurm *m, const Search *search, int64_t place) {
    while (place < m->control->departures && !frees_ready(s, m, search, place)) place++;
    return place;
}

/* Return the first departure from a place on that ends after an instant. */
static int64_t first_after(const Slurm *m, int64_t place, double instant) {
    int64_t low = place, high = m->control->departures;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (m->departures[middle].end_time <= instant) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Return the last departure of a group that begins at a place and whose window ends at an instant, before `count`.
 *
 * A group ends where the next departure of all is beyond its window. One that frees no open node and lies within the
 * window hides this: the next that does belongs to the group, however late it is.
 */
static int64_t group_end(const State *s, Slurm *m, const Search *search, int64_t place, double until, int64_t count) {
    int64_t beyond = first_after(m, place + 1, until);
    if (place >= beyond - 1) return place;
    int64_t last = next_departure(s, m, search, beyond - 1);
    if (last < count) return last;
    last = least_of(beyond - 2, count - 1);
    while (last > place && !frees_ready(s, m, search, last)) last--;
    return last;
}

/* Return when a job fits the open nodes if jobs end by their limits, group by group, and pick its nodes.
 *
 * Before the departure `enough` no group can suffice; infinity if none does by an instant.
 */
static double first_group(State *s, Slurm *m, int64_t row, Search *search, double now, int64_t enough, double by) {
    if (enough == AT_ONCE && fits_freed(s, m, row, search, AT_ONCE)) return now;
    const Departure *departures = m->departures;
    int64_t count = m->control->departures, place = next_departure(s, m, search, 0);
    if (place == count) return INFINITY;
    double aligned = (floor(departures[place].end_time / GROUP_S) + 1.0) * GROUP_S;
    for (double window = GROUP_S; place < count;) {
        int64_t last = group_end(s, m, search, place, aligned + window, count), next = last + 1;
        if (time_of(m, last, now) > by) return INFINITY;
        if (last >= enough && fits_freed(s, m, row, search, last)) return time_of(m, last, now);
        place = next_departure(s, m, search, next);
        do window *= 2.0;
        while (next < count && departures[next].end_time > aligned + window);
    }
    return INFINITY;
}

/* Return the next instant at which `wanted` nodes can be open: fewer are now, and all have been examined. */
static double next_open(const State *s, Slurm *m, int64_t wanted) {
    int64_t possible = 0;
    for (int64_t node = 0; node < s->n_nodes; node++)
        if (m->open_time[node] < INFINITY) m->scratch[possible++] = m->open_time[node];
    return nth_smallest(m->scratch, possible, wanted);
}

/* Return the last slot before an instant; the present one if there is none. */
static double slot_before(const Slurm *m, double at, double instant) {
    int64_t place = slot_place(m, instant, false);
    return place > 0 ? most(at, m->slots[place - 1]) : at;
}

/* Return the first instant by which a number of nodes are open and have enough free; infinity if that many never are.
 *
 * `opens` gets whether a node opens at that instant which has enough free before.
 */
static double soonest(Slurm *m, const Search *search, int64_t wanted, bool *opens) {
    double *first = m->scratch; /* the first instants at which nodes are open and free, sorted */
    int64_t count = 0;
    for (int64_t place = 0; place < search->nodes; place++) {
        int32_t node = search->order[place];
        double free = search->free_time[node];
        if (count == wanted && free >= first[count - 1]) break;
        double open = opening(m, search, node), both = most(free, open);
        if (both == INFINITY || (count == wanted && both >= first[count - 1])) continue;
        int64_t at = count < wanted ? count++ : count - 1;
        for (; at > 0 && first[at - 1] > both; at--) first[at] = first[at - 1];
        first[at] = both;
        *opens = open >= free;
    }
    return count < wanted ? INFINITY : first[count - 1];
}

/* Return the first slot from which on a job could start before the next slot.
 *
 * It is the present slot, or one before which too few nodes are open that have enough free by then.
 */
static double next_chance(const State *s, Slurm *m, Search *search) {
    bool opens = false;
    search->soonest = search->at;
    if (s->n_bookings > 0) return search->at;
    search->soonest = soonest(m, search, search->fewest, &opens);
    if (search->soonest == INFINITY || (search->fewest == 1 && opens)) return search->soonest;
    /* A gang with an open node count counts what becomes free in the second of its start. */
    if (search->fewest > search->wanted) search->soonest -= 1.0;
    return slot_before(m, search->at, search->soonest);
}

#include "slots.c"

/* Return the start that backfill expects for a job, and pick its nodes; infinity if beyond the window. */
static double earliest(State *s, Slurm *m, int64_t row, double now, double limit_s) {
    const Job *job = &s->jobs[row];
    int64_t part = part_of(job), most_leaves = s->n_leaves;
    if (!is_admitted(s, job, now)) return INFINITY;
    if (job->switches > 0 && now < switch_wait_ends(s, m, row)) most_leaves = job->switches;
    /* With fewer nodes no group can suffice. */
    int64_t fewest = part != NONE ? job->nodes_min : parts_of(job->gpus, s->rules->most_gpus);
    int64_t needed = part != NONE ? job->nodes_min : 1;
    double last = now + m->control->bf_window_s;
    if (part >= m->n_freed_by) return INFINITY;
    int64_t request = sort_request(s, m, job, part == NONE ? 1 : part, now);
    Search search = {
        .job = job,
        .freed_by = m->freed_by + request * m->freed_by_columns,
        .free_time = m->free_time + request * m->free_time_columns,
        .order = m->free_order + request * m->free_order_columns,
        .nodes = m->free_nodes[request],
        .part = part,
        .wanted = needed,
        .fewest = fewest,
        .most_leaves = most_leaves,
        .at = now,
        .limit_s = limit_s,
    };
    open_nodes(s, m, &search);
    if (m->control->by_slot) return earliest_by_slot(s, m, row, &search, now);
    for (double at = now; at <= last;) {
        search.at = at;
        double chance = next_chance(s, m, &search);
        if (search.soonest > last) return INFINITY;
        if (chance > at) {
            at = chance;
            continue;
        }
        search.examined = search.found = 0;
        find_ready(m, &search, fewest, INT64_MIN);
        if (search.found < fewest) {
            /* Slots before enough nodes are open lead nowhere. */
            at = next_open(s, m, fewest);
            continue;
        }
        int64_t enough = search.freed_by[m->ready[needed - 1]];
        double slot = next_slot(s, m, job, at), begin = time_of(m, enough, now);
        if (begin <= slot) begin = most(at, first_group(s, m, row, &search, now, enough, slot));
        /* What the job would get once another node opens is preferred, even if that is later. */
        if (begin > slot || begin == INFINITY) {
            at = slot;
            continue;
        }
        if (begin > last) return INFINITY;
        if (begin == at || !meets_reservation(s, m, job, on_slot(m, begin), end_slot(m, begin, limit_s))) return begin;
        at = begin;
    }
    return INFINITY;
}

/* Remove one of some sorted instants. */
static void remove_instant(double *instants, int64_t count, double at) {
    int64_t place = place_in(instants, count, at, false), behind = count - 1 - place;
    memmove(instants + place, instants + place + 1, (size_t)behind * sizeof *instants);
}

/* Add an instant to some sorted ones. */
static void add_instant(double *instants, int64_t count, double at) {
    int64_t place = place_in(instants, count, at, false);
    memmove(instants + place + 1, instants + place, (size_t)(count - place) * sizeof *instants);
    instants[place] = at;
}

/* Keep when each node shuts for reservations that follow one another at once, and opens after them, with one more. */
static void add_slot(Slurm *m, int64_t node, double begin, double until) {
    int64_t *count = &m->control->slots;
    double shuts = begin, opens = until, block = 0.0, block_end = -INFINITY;
    for (int32_t item = m->first[node];; item = m->reservations[item].next) {
        const Reservation *reservation = item == NONE ? NULL : &m->reservations[item];
        if (reservation && reservation->start_time <= block_end) {
            block_end = most(block_end, reservation->end_time);
            continue;
        }
        if (block_end > -INFINITY && block <= until && begin <= block_end) {
            remove_instant(m->slots, *count, block_end);
            remove_instant(m->shuts, (*count)--, block);
            shuts = least(shuts, block);
            opens = most(opens, block_end);
        }
        if (!reservation) break;
        block = reservation->start_time;
        block_end = reservation->end_time;
    }
    add_instant(m->slots, *count, opens);
    add_instant(m->shuts, (*count)++, shuts);
}

/* Add a reservation to those of a node, which are sorted by their starts. */
static void add_reservation(Slurm *m, int64_t node, Reservation added) {
    int32_t before = NONE, item = m->first[node];
    int32_t new_item = (int32_t)m->control->reservations++;
    while (item != NONE && m->reservations[item].start_time < added.start_time) {
        before = item;
        item = m->reservations[item].next;
    }
    added.next = item;
    added.node = (int32_t)node;
    m->reservations[new_item] = added;
    if (before != NONE) {
        m->reservations[before].next = new_item;
        return;
    }
    m->first[node] = new_item;
    m->first_time[node] = added.start_time;
}

/* Reserve the picked nodes as whole nodes for a job of the line. */
static void reserve(State *s, Slurm *m, double begin, double limit_s) {
    double until = end_slot(m, begin, limit_s);
    begin = on_slot(m, begin);
    until = most(until, begin + m->control->bf_resolution_s);
    for (int64_t place = 0; place < s->tally->picked; place++) {
        if (s->n_bookings == 0) add_slot(m, s->pick_nodes[place], begin, until);
        add_reservation(m, s->pick_nodes[place], (Reservation){.start_time = begin, .end_time = until, .booking = NONE});
    }
}

/* Forget the reservations of a pass, and list those of administrators that have not ended. */
static void list_bookings(State *s, Slurm *m, double now) {
    m->control->reservations = m->control->slots = 0;
    for (int64_t node = 0; node < s->n_nodes; node++) {
        m->first[node] = NONE;
        m->first_time[node] = INFINITY;
    }
    for (int32_t row = 0; row < s->n_bookings; row++) {
        const Booking *booking = &s->bookings[row];
        if (booking->end_time <= now) continue;
        /* A job can end as the reservation begins. */
        double start_time = nextafter(booking->start_time, INFINITY);
        for (int64_t node = 0; node < s->n_nodes; node++)
            if (s->booked[row * s->booked_columns + node])
                add_reservation(m, node, (Reservation){.start_time = start_time, .end_time = booking->end_time, .booking = row});
    }
}

/* Return whether an entry of the line could start now. */
static bool entry_may_start(State *s, Slurm *m, int32_t entry, double now) {
    int32_t row = row_of(s, m, entry);
    if (has_started(s, m, row) || exceeds_limits(s, m, row, entry)) return false;
    turn_to(s, m, partition_of(s, m, entry));
    return may_start(s, m, row, now) || (m->n_groups > 0 && list_candidates(s, m, entry, now) > 0);
}

static inline bool is_spent(int64_t tested, int64_t bound) { return bound > 0 && tested >= bound; }

/* Return whether backfill has tested enough jobs like one in this pass; count the job if not. */
static bool tested_enough(State *s, Slurm *m, int32_t row, int64_t partition) {
    const Control *control = m->control;
    if (!control->counts_tests) return false;
    int64_t user = s->jobs[row].user;
    Partition *home = &m->partitions[partition];
    Association *association = &m->associations[m->association[row]];
    int64_t *of_user = &m->tested[user], *in_partition = &m->tested[(partition + 1) * control->users + user];
    if (is_spent(*in_partition, control->bf_max_job_user_part) || is_spent(home->tested, control->bf_max_job_part) ||
        is_spent(association->tested, control->bf_max_job_assoc) || is_spent(*of_user, control->bf_max_job_user))
        return true;
    *in_partition += 1;
    *of_user += 1;
    home->tested++;
    association->tested++;
    return false;
}

/* Return whether a job is too young or of too low a priority to hold nodes against later ones. */
static bool holds_nothing(const State *s, const Slurm *m, int32_t entry, double now) {
    const Control *control = m->control;
    return points_of(s, m, entry) < control->bf_min_prio_reserve ||
           now - m->eligible_time[row_of(s, m, entry)] < control->bf_min_age_reserve_s;
}

/* Empty the reservations and the counts of the last pass of backfill. */
static void begin_backfill(State *s, Slurm *m, double now) {
    Control *control = m->control;
    control->backfill_time = now;
    control->backfill_due_time = INFINITY;
    control->passes++;
    list_bookings(s, m, now);
    open_partitions(m);
    if (control->counts_tests) {
        memset(m->tested, 0, (size_t)m->n_tested * sizeof *m->tested);
        for (int64_t row = 0; row < m->n_associations; row++) m->associations[row].tested = 0;
    }
    list_room(s, m);
}

/* Return the place of a search for a job among those that found no start. */
static Futile *search_of(const Slurm *m, const Job *job, double limit_s) {
    return &m->futile[((int64_t)limit_s + 7919 * most_of(0, shape_of(m, job))) % m->n_futile];
}

/* Return whether a search for a job like this one found no start, and no job has started or reserved nodes since. */
static bool is_known_futile(const Slurm *m, const Futile *last, const Job *job, double limit_s) {
    const Control *control = m->control;
    return last->shape == shape_of(m, job) && last->limit_s == limit_s && last->plan == control->plans &&
           last->reservations == control->reservations && job->shape != NONE && job->switches == 0;
}

static void note_futile(const Slurm *m, Futile *last, const Job *job, double limit_s) {
    if (job->shape == NONE || job->switches > 0) return;
    *last = (Futile){
        .limit_s = limit_s, .plan = m->control->plans, .reservations = m->control->reservations, .shape = shape_of(m, job),
    };
}

/* Start every job of the line that delays no reservation of an earlier job.
 *
 * The pass ends when no later job can start now: their reservations would change nothing.
 */
static void backfill_pass(State *s, Slurm *m, double now) {
    Control *control = m->control;
    if (s->tally->waiting > 0) admit_waiting(s, m, now);
    order_anew(s, m);
    begin_backfill(s, m, now);
    bool is_planned = false, skips = control->has_limits || control->counts_tests;
    int64_t place = 0, tries = 0, started = 0;
    int64_t left = skips ? control->lined : backfill_reach(s, m); /* entries still to be tested */
    while (tries < control->bf_depth) {
        while (left > 0 && !entry_may_start(s, m, m->line[place + left - 1], now)) left--;
        if (left == 0) break;
        left--;
        int32_t entry = m->line[place], row = row_of(s, m, entry), partition = partition_of(s, m, entry);
        bool has_turn = !has_started(s, m, row) && !at_array_limit(m, row) && !exceeds_jobs(s, m, row, entry);
        if (!has_turn || tested_enough(s, m, row, partition)) {
            place++;
            continue;
        }
        tries++;
        turn_to(s, m, partition);
        double limit_s = planned_limit_s(m, &s->jobs[row]);
        bool is_limited = exceeds_limits(s, m, row, entry);
        if (!is_limited && may_start(s, m, row, now) && pick_accepted(s, m, row, now + limit_s, now)) {
            launch(s, m, place, now);
            if (is_spent(++started, control->bf_max_job_start)) break;
            list_room(s, m);
            is_planned = false;
            continue;
        }
        place++;
        if (!is_limited && preempts_others(s, m, entry, now + limit_s, now)) {
            reserve(s, m, now, limit_s);
            is_planned = false;
            continue;
        }
        if (is_limited || holds_nothing(s, m, entry, now)) continue;
        if (is_spent(m->partitions[partition].reservations, control->bf_job_part_count_reserve)) continue;
        if (control->reservations + s->n_nodes > m->n_reservations || place > control->bf_places) continue;
        if (!plans_task(m, row)) continue;
        if (!is_planned) plan(s, m, now);
        is_planned = true;
        Futile *search = search_of(m, &s->jobs[row], limit_s);
        if (is_known_futile(m, search, &s->jobs[row], limit_s)) continue;
        double begin = earliest(s, m, row, now, limit_s);
        if (begin < INFINITY) {
            reserve(s, m, begin, limit_s);
            m->partitions[partition].reservations++;
        } else note_futile(m, search, &s->jobs[row], limit_s);
    }
    list_bookings(s, m, now);
    clear_started(s, m);
    stop_leaving(s, m, now);
}
