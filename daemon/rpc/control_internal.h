/* The handlers of Control by the file that has them; control.c puts them in a table. */
#pragma once

#include "rpc/pending.h"

typedef void Handler(Call *call, const ProtobufCMessage *message, void *server);

/* control_jobs.c */
Handler control_submit, control_list, control_get, control_pause, control_resume, control_cancel,
    control_restore, control_update;
/* control_watch.c */
Handler control_watch;
/* control_checkpoints.c */
Handler control_checkpoint, control_list_checkpoints;
/* control_evaluate.c */
Handler control_evaluate;
/* control_export.c */
Handler control_export;
/* control_history.c */
Handler control_metrics, control_evaluations, control_events;
/* control_server.c */
Handler control_server_info;
