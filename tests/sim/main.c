/* dps_sim: runs simulated worlds and tells of the first broken invariant.
 *
 *   dps_sim [--seed S] [--jobs N] [--twice] [--events] [--trace] [--keep-going]
 *
 * Each world has a seed of its own, S, S+1, …, until N jobs were simulated (one world if --jobs is
 * not given). --twice runs each world again and compares. --events tells of each world, --trace of
 * each event. --keep-going does not end with the first broken invariant. The exit status is 1 where
 * one is broken. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "memory.h"
#include "sim.h"

typedef struct Options {
    uint64_t seed, jobs;
    bool twice, telling, tracing, keep_going;
} Options;

typedef struct Total {
    uint64_t worlds, jobs, events, completed, kills, stops, broken;
} Total;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static bool read_options(int argc, char **argv, Options *ret)
{
    static const struct option names[] = {
        {"seed", required_argument, NULL, 's'},
        {"jobs", required_argument, NULL, 'j'},
        {"twice", no_argument, NULL, '2'},
        {"events", no_argument, NULL, 'e'},
        {"trace", no_argument, NULL, 't'},
        {"keep-going", no_argument, NULL, 'k'},
        {0},
    };
    int c;
    while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (c) {
        case 's':
            ret->seed = strtoull(optarg, NULL, 10);
            break;
        case 'j':
            ret->jobs = strtoull(optarg, NULL, 10);
            break;
        case '2':
            ret->twice = true;
            break;
        case 'e':
            ret->telling = true;
            break;
        case 't':
            ret->tracing = true;
            break;
        case 'k':
            ret->keep_going = true;
            break;
        default:
            return false;
        }
    }
    return optind == argc;
}

static void run_one(const Options *options, uint64_t seed, Total *total)
{
    WorldResult result, second;
    world_run(seed, options->tracing, &result);
    total->worlds++;
    total->jobs += result.jobs;
    total->events += result.events;
    total->completed += result.completed;
    total->kills += result.kills;
    total->stops += result.stops;
    total->broken += result.broken;
    if (options->telling)
        printf("seed %llu: %u jobs, %llu events, trace %016llx\n", (unsigned long long)seed,
               result.jobs, (unsigned long long)result.events, (unsigned long long)result.hash);
    if (result.broken)
        printf("BROKEN: %s\n", world.failure);
    if (!options->twice || result.broken)
        return;
    world_run(seed, false, &second);
    total->events += second.events;
    if (second.hash != result.hash || second.events != result.events) {
        printf("BROKEN: seed %llu: two runs differ: %llu events, %016llx; %llu events, %016llx\n",
               (unsigned long long)seed, (unsigned long long)result.events,
               (unsigned long long)result.hash, (unsigned long long)second.events,
               (unsigned long long)second.hash);
        total->broken++;
    }
}

int main(int argc, char **argv)
{
    Options options = {.seed = 1, .jobs = 1};
    Total total = {0};
    if (!read_options(argc, argv, &options)) {
        fprintf(stderr, "usage: dps_sim [--seed S] [--jobs N] [--twice] [--events] [--trace] "
                        "[--keep-going]\n");
        return 2;
    }
    memory_begin();
    double begun = seconds();
    for (uint64_t seed = options.seed; total.jobs < options.jobs; seed++) {
        run_one(&options, seed, &total);
        if (total.broken && !options.keep_going)
            break;
    }
    double took = seconds() - begun;
    events_end();
    printf("%llu jobs in %llu worlds (%llu completed, %llu kills, %llu stops), %llu events in "
           "%.2f s: %.0f events/s, %llu broken\n",
           (unsigned long long)total.jobs, (unsigned long long)total.worlds,
           (unsigned long long)total.completed, (unsigned long long)total.kills,
           (unsigned long long)total.stops, (unsigned long long)total.events, took,
           (double)total.events / took, (unsigned long long)total.broken);
    return total.broken ? 1 : 0;
}
