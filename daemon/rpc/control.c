/* The method table of dps.v1.Control. */
#include "rpc/control_internal.h"

#include "dps.pb-c.h"

#define METHOD(name, message, client, server, handler)                                             \
    {                                                                                              \
        "/dps.v1.Control/" name, &dps__v1__##message##__descriptor, client, server, handler        \
    }

static const Method methods[] = {
    METHOD("Submit", job_spec, false, false, control_submit),
    METHOD("List", list_request, false, false, control_list),
    METHOD("Get", job_request, false, false, control_get),
    METHOD("Watch", watch_request, false, true, control_watch),
    METHOD("Update", update_request, false, false, control_update),
    METHOD("Pause", job_request, false, false, control_pause),
    METHOD("Resume", job_request, false, false, control_resume),
    METHOD("Cancel", job_request, false, false, control_cancel),
    METHOD("Checkpoint", job_request, false, false, control_checkpoint),
    METHOD("ListCheckpoints", job_request, false, false, control_list_checkpoints),
    METHOD("Restore", restore_request, false, false, control_restore),
    METHOD("Evaluate", evaluate_request, true, false, control_evaluate),
    METHOD("Export", export_request, false, true, control_export),
    METHOD("Metrics", metrics_request, false, true, control_metrics),
    METHOD("Evaluations", evaluations_request, false, true, control_evaluations),
    METHOD("Events", job_request, false, true, control_events),
    METHOD("ServerInfo", empty, false, false, control_server_info),
};

MethodTable control_methods(Services *services)
{
    return (MethodTable){methods, sizeof methods / sizeof *methods, services};
}
