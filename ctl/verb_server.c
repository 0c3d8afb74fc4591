/* dpsctl server */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "ctl/json.h"
#include "ctl/render/table.h"
#include "ctl/render/units.h"
#include "ctl/request.h"
#include "ctl/verbs.h"

DEFINE_CLEANUP(Table, table_free);

static const ArgSpec spec = {
    .verb = "server",
    .positional = "",
    .summary = "Show the daemon: its devices, models, and load",
};

static void print_text(const char *label, const char *text)
{
    char clean[512];

    printf("%12s: %s\n", label, ctl_sanitise_to(text, clean, sizeof clean));
}

static void print_list(const char *label, char *const *texts, size_t count)
{
    char clean[256];

    printf("%12s: ", label);
    for (size_t i = 0; i < count; i++)
        printf("%s%s", i > 0 ? ", " : "", ctl_sanitise_to(texts[i], clean, sizeof clean));
    putchar('\n');
}

static int print_devices(const Dps__V1__ServerInfoReply *server)
{
    static const TableColumn columns[] = {
        {"device", false}, {"backend", false}, {"replicas", true}, {"memory", true}, {"busy", true},
    };
    _cleanup_(table_freep) Table *table = table_new(columns, sizeof columns / sizeof *columns);
    Term term = term_of(stdout);
    char text[UNITS_SIZE];

    if (!table)
        return -ENOMEM;
    for (size_t i = 0; i < server->n_devices; i++) {
        const Dps__V1__DeviceInfo *device = server->devices[i];
        table_cell(table, device->name);
        table_cell(table, device->backend);
        table_cellf(table, "%" PRIu32, device->replicas);
        table_cell(table, units_bytes(device->memory_bytes, text));
        table_cellf(table, "%.0f%%", device->busy * 100);
    }
    return table_print(table, stdout, &term, 2);
}

static int print_server(const Dps__V1__ServerInfoReply *server)
{
    char text[UNITS_SIZE];

    print_text("Version", server->version);
    print_text("Up", units_duration(server->uptime_s, text));
    print_text("State", server->state_dir);
    print_list("Listens on", server->listeners, server->n_listeners);
    print_list("Models", server->models, server->n_models);
    print_list("Policies", server->policies, server->n_policies);
    printf("%12s: jobs running %" PRIu32 ", trainers %" PRIu32 ", connections %" PRIu32 "\n",
           "Load", server->jobs_running, server->sessions, server->connections);
    print_text("Memory", units_bytes(server->rss_bytes, text));
    if (*server->note)
        print_text("Note", server->note);
    printf("%12s: %zu\n", "Devices", server->n_devices);
    return server->n_devices > 0 ? print_devices(server) : 0;
}

static int run(int argc, char **argv, const CtlOptions *options)
{
    _cleanup_request_ Request request = {0};
    _cleanup_(message_freep) Dps__V1__ServerInfoReply *server = NULL;
    Dps__V1__Empty message = DPS__V1__EMPTY__INIT;
    int r = request_begin(&spec, argc, argv, NULL, options, &request);

    if (r != CTL_GO_ON)
        return r;
    r = request_call(&request, "ServerInfo", &message.base, REQUEST_MS, &server);
    if (r != CTL_GO_ON)
        return r;
    return request_printed(&request, request.options.json ? json_print(json_server(server))
                                                          : print_server(server));
}

const Verb verb_server = {&spec, run};
