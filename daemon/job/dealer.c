#include "job/dealer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "job/json.h"

enum { PERMUTATIONS_KEPT = 2 }; /* ranks may stand on both sides of an epoch's end */

/* Batch numbers in order; taken from the front. */
typedef struct Batches {
    uint64_t *numbers;
    size_t begin, end, capacity;
} Batches;

typedef struct Rank {
    bool live;
    uint64_t first_step; /* the step that todo.numbers[todo.begin] is for */
    uint64_t dealt;      /* steps dealt to it so far, over its whole life */
    Batches todo;
} Rank;

typedef struct Permutation {
    bool filled;
    uint64_t epoch;
    uint64_t *indices; /* samples */
} Permutation;

struct Dealer {
    DealerSpec spec;
    uint64_t per_epoch; /* batches */
    uint64_t total;     /* batches of the whole job */
    uint64_t next;      /* first batch that was never dealt */
    Batches returned;
    Permutation permutations[PERMUTATIONS_KEPT];
    Rank ranks[];
};

static size_t batches_length(const Batches *batches)
{
    return batches->end - batches->begin;
}

/* So that the next `count` pushes succeed. */
static int batches_reserve(Batches *batches, size_t count)
{
    if (batches->end + count > batches->capacity && batches->begin > 0) {
        memmove(batches->numbers, batches->numbers + batches->begin,
                batches_length(batches) * sizeof *batches->numbers);
        batches->end -= batches->begin;
        batches->begin = 0;
    }
    if (batches->end + count > batches->capacity) {
        size_t capacity = batches->capacity ? batches->capacity * 2 : 16;
        if (capacity < batches->end + count)
            capacity = batches->end + count;
        uint64_t *grown = realloc(batches->numbers, capacity * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        batches->numbers = grown;
        batches->capacity = capacity;
    }
    return 0;
}

static int batches_push(Batches *batches, uint64_t number)
{
    int r = batches_reserve(batches, 1);
    if (r < 0)
        return r;
    batches->numbers[batches->end++] = number;
    return 0;
}

static int compare_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

int dealer_new(const DealerSpec *spec, Dealer **ret)
{
    Dealer *dealer = calloc(1, sizeof *dealer + spec->ranks * sizeof *dealer->ranks);
    if (!dealer)
        return -ENOMEM;
    dealer->spec = *spec;
    dealer->per_epoch = spec->samples ? (spec->samples + spec->batch - 1) / spec->batch : 0;
    dealer->total = spec->steps ? UINT64_MAX : dealer->per_epoch * spec->epochs;
    for (uint32_t r = 0; r < spec->ranks; r++)
        dealer->ranks[r].live = true;
    for (int i = 0; spec->samples && i < PERMUTATIONS_KEPT; i++) {
        dealer->permutations[i].indices = calloc(spec->samples, sizeof(uint64_t));
        if (!dealer->permutations[i].indices) {
            dealer_free(dealer);
            return -ENOMEM;
        }
    }
    *ret = dealer;
    return 0;
}

Dealer *dealer_free(Dealer *dealer)
{
    if (!dealer)
        return NULL;
    for (uint32_t r = 0; r < dealer->spec.ranks; r++)
        free(dealer->ranks[r].todo.numbers);
    for (int i = 0; i < PERMUTATIONS_KEPT; i++)
        free(dealer->permutations[i].indices);
    free(dealer->returned.numbers);
    free(dealer);
    return NULL;
}

uint64_t dealer_batches_per_epoch(const Dealer *dealer)
{
    return dealer->per_epoch;
}

static bool may_deal_to(const Dealer *dealer, const Rank *rank)
{
    return rank->live && (!dealer->spec.steps || rank->dealt < dealer->spec.steps);
}

static bool take_batch(Dealer *dealer, uint64_t *ret)
{
    if (batches_length(&dealer->returned)) {
        *ret = dealer->returned.numbers[dealer->returned.begin++];
        return true;
    }
    if (dealer->next >= dealer->total)
        return false;
    *ret = dealer->next++;
    return true;
}

/* One batch for every live rank, in rank order. False: nothing was left to deal. */
static int deal_row(Dealer *dealer, bool *dealt)
{
    *dealt = false;
    for (uint32_t r = 0; r < dealer->spec.ranks; r++) /* a row is dealt whole or not at all */
        if (may_deal_to(dealer, &dealer->ranks[r]) &&
            batches_reserve(&dealer->ranks[r].todo, 1) < 0)
            return -ENOMEM;
    for (uint32_t r = 0; r < dealer->spec.ranks; r++) {
        Rank *rank = &dealer->ranks[r];
        uint64_t number;
        if (!may_deal_to(dealer, rank) || !take_batch(dealer, &number))
            continue;
        (void)batches_push(&rank->todo, number); /* there is room */
        rank->dealt++;
        *dealt = true;
    }
    return 0;
}

static int deal_until(Dealer *dealer, Rank *rank, uint64_t step)
{
    while (rank->first_step + batches_length(&rank->todo) <= step) {
        bool dealt = false;
        int r = may_deal_to(dealer, rank) ? deal_row(dealer, &dealt) : 0;
        if (r < 0)
            return r;
        if (!dealt)
            return -ENODATA;
    }
    return step < rank->first_step ? -ENODATA : 0;
}

static const uint64_t *permutation(Dealer *dealer, uint64_t epoch)
{
    Permutation *kept = &dealer->permutations[epoch % PERMUTATIONS_KEPT];
    if (!kept->filled || kept->epoch != epoch) {
        RngKey key = {.seed = dealer->spec.seed, .purpose = RNG_PERMUTATION, .a = (uint32_t)epoch};
        rng_permutation(&key, dealer->spec.samples, kept->indices);
        kept->epoch = epoch;
        kept->filled = true;
    }
    return kept->indices;
}

int dealer_batch(Dealer *dealer, uint32_t rank, uint64_t step, DealerBatch *ret)
{
    Rank *entry = &dealer->ranks[rank];
    if (!dealer->spec.samples)
        return -ENODATA;
    int r = deal_until(dealer, entry, step);
    if (r < 0)
        return r;
    uint64_t number = entry->todo.numbers[entry->todo.begin + (step - entry->first_step)];
    uint64_t first = number % dealer->per_epoch * dealer->spec.batch;
    uint64_t left = dealer->spec.samples - first;
    ret->number = number;
    ret->epoch = number / dealer->per_epoch;
    ret->samples = left < dealer->spec.batch ? (uint32_t)left : dealer->spec.batch;
    ret->indices = permutation(dealer, ret->epoch) + first;
    return 0;
}

bool dealer_has_step(Dealer *dealer, uint32_t rank, uint64_t step)
{
    Rank *entry = &dealer->ranks[rank];
    if (dealer->spec.samples) /* without memory there may be one: the job must not end for that */
        return deal_until(dealer, entry, step) != -ENODATA;
    return entry->live && step < dealer->spec.steps;
}

void dealer_done(Dealer *dealer, uint32_t rank)
{
    Rank *entry = &dealer->ranks[rank];
    entry->first_step++;
    if (batches_length(&entry->todo))
        entry->todo.begin++;
}

int dealer_drop(Dealer *dealer, uint32_t rank)
{
    Rank *entry = &dealer->ranks[rank];
    if (batches_reserve(&dealer->returned, batches_length(&entry->todo)) < 0)
        return -ENOMEM;
    entry->live = false;
    for (size_t i = entry->todo.begin; i < entry->todo.end; i++)
        (void)batches_push(&dealer->returned, entry->todo.numbers[i]);
    entry->dealt -= batches_length(&entry->todo);
    entry->todo.begin = entry->todo.end = 0;
    if (batches_length(&dealer->returned))
        qsort(dealer->returned.numbers + dealer->returned.begin, batches_length(&dealer->returned),
              sizeof *dealer->returned.numbers, compare_numbers);
    return 0;
}

void dealer_admit(Dealer *dealer, uint32_t rank, uint64_t step)
{
    Rank *entry = &dealer->ranks[rank];
    entry->live = true;
    entry->first_step = step;
    entry->dealt = step; /* steps that passed without it count as fed: all ranks end together */
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Numbers stay below 2^53: a batch number is at most JOB_MAX_EPOCHS times JOB_MAX_SAMPLES. */
static bool add_batches(cJSON *object, const char *name, const Batches *batches)
{
    cJSON *array = cJSON_AddArrayToObject(object, name);
    for (size_t i = batches->begin; array && i < batches->end; i++)
        if (!cJSON_AddItemToArray(array, cJSON_CreateNumber((double)batches->numbers[i])))
            return false;
    return array;
}

static int read_batches(const cJSON *object, const char *name, Batches *batches)
{
    const cJSON *number;
    batches->begin = batches->end = 0;
    cJSON_ArrayForEach(number, cJSON_GetObjectItemCaseSensitive(object, name))
    {
        if (!cJSON_IsNumber(number))
            return -EBADMSG;
        int r = batches_push(batches, (uint64_t)number->valuedouble);
        if (r < 0)
            return r;
    }
    return 0;
}

static bool add_rank(cJSON *ranks, const Rank *rank)
{
    cJSON *entry = cJSON_CreateObject();
    if (!cJSON_AddItemToArray(ranks, entry))
        return false;
    return cJSON_AddBoolToObject(entry, "live", rank->live) &&
           json_add_u64(entry, "first_step", rank->first_step) &&
           json_add_u64(entry, "dealt", rank->dealt) && add_batches(entry, "todo", &rank->todo);
}

int dealer_save(const Dealer *dealer, char **ret)
{
    cJSON *json = cJSON_CreateObject();
    bool whole = json && json_add_u64(json, "next", dealer->next) &&
                 add_batches(json, "returned", &dealer->returned);
    cJSON *ranks = whole ? cJSON_AddArrayToObject(json, "ranks") : NULL;
    whole = ranks;
    for (uint32_t r = 0; whole && r < dealer->spec.ranks; r++)
        whole = add_rank(ranks, &dealer->ranks[r]);
    char *text = whole ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    if (!text)
        return -ENOMEM;
    *ret = text;
    return 0;
}

static int read_rank(const cJSON *entry, Rank *rank)
{
    if (!cJSON_IsObject(entry))
        return -EBADMSG;
    rank->live = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(entry, "live"));
    rank->first_step = json_u64(entry, "first_step");
    rank->dealt = json_u64(entry, "dealt");
    return read_batches(entry, "todo", &rank->todo);
}

static int read_dealer(const cJSON *json, Dealer *dealer)
{
    const cJSON *ranks = cJSON_GetObjectItemCaseSensitive(json, "ranks");
    if (!cJSON_IsArray(ranks) || (uint32_t)cJSON_GetArraySize(ranks) != dealer->spec.ranks)
        return -EBADMSG;
    dealer->next = json_u64(json, "next");
    int result = read_batches(json, "returned", &dealer->returned);
    uint32_t r = 0;
    const cJSON *entry;
    cJSON_ArrayForEach(entry, ranks)
    {
        if (result == 0)
            result = read_rank(entry, &dealer->ranks[r++]);
    }
    return result;
}

int dealer_load(Dealer *dealer, const char *text)
{
    cJSON *json = cJSON_Parse(text);
    int r = cJSON_IsObject(json) ? read_dealer(json, dealer) : -EBADMSG;
    cJSON_Delete(json);
    return r;
}
