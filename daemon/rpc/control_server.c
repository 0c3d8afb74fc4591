/* ServerInfo: what this dpsd is and has. */
#include "rpc/control_internal.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "dps.pb-c.h"
#include "job/policy.h"
#include "model/zoo.h"

enum { DEVICES_MAX = 64, NAMES_MAX = 32, LISTENERS_MAX = 16 };

typedef struct Info {
    Dps__V1__ServerInfoReply reply;
    Dps__V1__DeviceInfo devices[DEVICES_MAX], *device_pointers[DEVICES_MAX];
    char *models[NAMES_MAX], *policies[NAMES_MAX], *listeners[LISTENERS_MAX];
} Info;

static uint64_t resident_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file)
        return 0;
    if (fscanf(file, "%*s %lu", &pages) != 1)
        pages = 0;
    (void)fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void pack_devices(const Services *services, Info *info, double uptime_s)
{
    unsigned n;
    Lane *const *lanes = manager_lanes(services->jobs, &n);
    n = n > DEVICES_MAX ? DEVICES_MAX : n;
    for (unsigned i = 0; i < n; i++) {
        Dps__V1__DeviceInfo *device = &info->devices[i];
        unsigned replicas;
        size_t bytes;
        dps__v1__device_info__init(device);
        manager_lane_use(services->jobs, i, &replicas, &bytes);
        device->name = (char *)lane_name(lanes[i]);
        device->backend = (char *)services->facts.backend;
        device->replicas = replicas;
        device->memory_bytes = bytes;
        device->busy = uptime_s > 0 ? (double)lane_busy_us(lanes[i]) / 1e6 / uptime_s : 0;
        info->device_pointers[i] = device;
    }
    info->reply.n_devices = n;
    info->reply.devices = info->device_pointers;
}

static void pack_names(const ServerFacts *facts, Info *info)
{
    Dps__V1__ServerInfoReply *reply = &info->reply;
    for (int i = 0; i < zoo_count() && i < NAMES_MAX; i++)
        info->models[reply->n_models++] = (char *)zoo_entry(i)->name;
    for (int i = 0; i < policy_count() && i < NAMES_MAX; i++)
        info->policies[reply->n_policies++] = (char *)policy_entry(i)->name;
    const char *listener;
    for (unsigned i = 0; i < LISTENERS_MAX && (listener = facts->listener(facts->data, i)); i++)
        info->listeners[reply->n_listeners++] = (char *)listener;
    reply->models = info->models;
    reply->policies = info->policies;
    reply->listeners = info->listeners;
}

void control_server_info(Call *call, const ProtobufCMessage *message, void *server)
{
    const Services *services = server;
    const ServerFacts *facts = &services->facts;
    Info info = {.reply = DPS__V1__SERVER_INFO_REPLY__INIT};
    (void)message;
    info.reply.uptime_s = (double)(clock_monotonic_us() - facts->started_us) / 1e6;
    pack_devices(services, &info, info.reply.uptime_s);
    pack_names(facts, &info);
    info.reply.version = (char *)facts->version;
    info.reply.state_dir = (char *)facts->state_dir;
    info.reply.note = (char *)facts->note;
    info.reply.jobs_running = manager_running(services->jobs);
    info.reply.sessions = session_count(services->sessions);
    info.reply.connections = facts->connections(facts->data);
    info.reply.rss_bytes = resident_bytes();
    call_reply(call, &info.reply.base);
}
