/* Settings: what the store says that a rank should have in a round, and random changes. */
#include <stdio.h>
#include <string.h>

#include "job/settings.h"
#include "sim.h"

/* What the job was submitted with, then every change up to that round: by round, and then in the
 * order of asking. After a kill a later one may be asked for an earlier round. */
const JobSettings *settings_wanted(SimJob *sim, uint32_t rank, uint64_t round)
{
    const DiskJob *disk = disk_job(&world.disk, sim->id);
    if (sim->wanted[rank].round == round && sim->wanted[rank].stamp == disk->settings_stamp + 1)
        return &sim->wanted[rank].values;
    JobSettings *values = &sim->wanted[rank].values;
    if (job_spec_settings(&sim->spec, values, NULL) < 0)
        sim_fail("the settings of the spec are not valid");
    for (uint64_t r = 0, next; r <= round; r = next) {
        next = UINT64_MAX;
        for (size_t i = 0; i < disk->n_settings; i++) {
            const DiskSetting *setting = &disk->settings[i];
            if (setting->round == r)
                (void)settings_apply(values, setting->key, setting->value, NULL);
            else if (setting->round > r && setting->round < next)
                next = setting->round;
        }
    }
    sim->wanted[rank].round = round;
    sim->wanted[rank].stamp = disk->settings_stamp + 1;
    return values;
}

bool settings_alike(const JobSettings *a, const JobSettings *b, char *differs, size_t size)
{
    for (int i = 0; i < settings_count(); i++) {
        char has[SETTING_VALUE_MAX], wanted[SETTING_VALUE_MAX];
        settings_format(a, i, has, sizeof has);
        settings_format(b, i, wanted, sizeof wanted);
        if (strcmp(has, wanted) == 0)
            continue;
        snprintf(differs, size, "%s=%s; the store has %s", settings_key(i), has, wanted);
        return false;
    }
    return true;
}

/* ---- random ones -------------------------------------------------------------------------------
 */

static const char *const policies[] = {"average", "average-async", "elastic",
                                       "diloco",  "barrier",       "async"};

static void whole(char *value, size_t size, uint64_t low, uint64_t high)
{
    snprintf(value, size, "%llu", (unsigned long long)sim_between(low, high));
}

static void fraction(char *value, size_t size)
{
    snprintf(value, size, sim_chance(200) ? "1" : "0.%03u", (unsigned)sim_between(0, 999));
}

static void random_policy(char *value, size_t size)
{
    snprintf(value, size, "%s", policies[sim_between(0, 5)]);
}

static void random_wait(char *value, size_t size)
{
    if (sim_chance(300))
        snprintf(value, size, "all");
    else
        snprintf(value, size, "quorum:%u", (unsigned)sim_between(1, 4));
}

static void random_schedule(char *value, size_t size)
{
    static const char *const schedules[] = {"constant", "step,every=7,gamma=0.5",
                                            "cosine,steps=40,min=0.001", "constant,warmup=9"};
    snprintf(value, size, "%s", schedules[sim_between(0, 3)]);
}

typedef struct RandomSetting {
    const char *key;
    void (*make)(char *value, size_t size); /* NULL: a whole number in low … high */
    uint64_t low, high;
} RandomSetting;

static const RandomSetting random_settings[] = {
    {"sync.interval", NULL, 1, 12},
    {"sync.interval", NULL, 1, 4},
    {"sync.policy", random_policy},
    {"sync.wait", random_wait},
    {"sync.timeout", NULL, 1, 5},
    {"sync.max_staleness", NULL, 0, 4},
    {"sync.alpha", fraction},
    {"sync.outer_lr", fraction},
    {"sync.outer_momentum", fraction},
    {"optimizer.lr", fraction},
    {"optimizer.schedule", random_schedule},
    {"optimizer.clip", fraction},
    {"guard.norm", NULL, 0, 6},
    {"guard.strikes", NULL, 1, 4},
    {"trainers", NULL, 1, SIM_MAX_RANKS},
    {"checkpoint.rounds", NULL, 1, 12},
    {"checkpoint.keep", NULL, 1, 4},
    {"eval.every", NULL, 0, 5},
};

void settings_random(char *key, size_t key_size, char *value, size_t value_size)
{
    const RandomSetting *setting =
        &random_settings[sim_between(0, sizeof random_settings / sizeof *random_settings - 1)];
    snprintf(key, key_size, "%s", sim_chance(10) ? "no.such" : setting->key);
    if (sim_chance(10))
        snprintf(value, value_size, "-1");
    else if (setting->make)
        setting->make(value, value_size);
    else
        whole(value, value_size, setting->low, setting->high);
}
