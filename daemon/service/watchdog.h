/* Feeds systemd's watchdog, but only while the loop turns and the store thread answers. Loop
 * thread. */
#pragma once

#include "base/timer.h"
#include "store/store.h"

typedef struct Watchdog Watchdog;

/* Does nothing where systemd set no watchdog (*ret is still to be freed). -ENOMEM */
int watchdog_new(Timers *timers, Store *store, Watchdog **ret);
/* Before the store is closed; pings under way come back after it. */
Watchdog *watchdog_free(Watchdog *watchdog);
