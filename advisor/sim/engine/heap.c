/* Binary heaps of job rows with the lowest key on top.
 *
 * `order` holds rows from `base` on. A key is a column of the job table, as is the place of a row in its heap. Equal keys
 * are ordered by row, that is by submit time and job id.
 */

typedef struct {
    int32_t *order;
    Job *jobs;
    size_t key;  /* offsets of the two columns in a record */
    size_t slot;
} Heap;

static inline double heap_key(const Heap *h, int32_t row) { return *(double *)((char *)(h->jobs + row) + h->key); }
static inline int32_t *heap_slot(const Heap *h, int32_t row) { return (int32_t *)((char *)(h->jobs + row) + h->slot); }

static inline bool heap_before(const Heap *h, int32_t one, int32_t other) {
    double first = heap_key(h, one), second = heap_key(h, other);
    return first < second || (first == second && one < other);
}

static void heap_rise(const Heap *h, int64_t slot) {
    int32_t row = h->order[slot];
    while (slot > 0) {
        int64_t parent = (slot - 1) / 2;
        int32_t above = h->order[parent];
        if (!heap_before(h, row, above)) break;
        h->order[slot] = above;
        *heap_slot(h, above) = (int32_t)slot;
        slot = parent;
    }
    h->order[slot] = row;
    *heap_slot(h, row) = (int32_t)slot;
}

static void heap_sink(const Heap *h, int64_t length, int64_t slot) {
    int32_t row = h->order[slot];
    for (;;) {
        int64_t child = 2 * slot + 1;
        if (child >= length) break;
        if (child + 1 < length && heap_before(h, h->order[child + 1], h->order[child])) child++;
        int32_t below = h->order[child];
        if (!heap_before(h, below, row)) break;
        h->order[slot] = below;
        *heap_slot(h, below) = (int32_t)slot;
        slot = child;
    }
    h->order[slot] = row;
    *heap_slot(h, row) = (int32_t)slot;
}

/* Add a row and return the new length. */
static int64_t heap_push(const Heap *h, int64_t length, int32_t row) {
    h->order[length] = row;
    heap_rise(h, length);
    return length + 1;
}

/* Remove a row and return the new length. */
static int64_t heap_remove(const Heap *h, int64_t length, int32_t row) {
    int64_t slot = *heap_slot(h, row), last = length - 1;
    *heap_slot(h, row) = NONE;
    if (slot != last) {
        h->order[slot] = h->order[last];
        heap_rise(h, slot);
        heap_sink(h, last, *heap_slot(h, h->order[slot]));
    }
    return last;
}

/* Restore the order after the key of a row has changed. */
static void heap_moved(const Heap *h, int64_t length, int32_t row) {
    heap_rise(h, *heap_slot(h, row));
    heap_sink(h, length, *heap_slot(h, row));
}
