/* Uses the client's interface against a server that tests/integration/test_dpsctl_client.py runs:
 * client_probe ADDRESS deadline|flood|both|wait. Prints what it saw; exits 0 when that is right. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "ctl/client.h"
#include "dps.pb-c.h"

#define CONTROL (&dps__v1__control__descriptor)

static void check(int truth, const char *what)
{
    if (truth)
        return;
    fprintf(stderr, "client_probe: %s\n", what);
    exit(1);
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A call that is not answered within 300 ms; the client goes on after it. */
static void probe_deadline(Client *client)
{
    Dps__V1__ListRequest request = DPS__V1__LIST_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    ClientStatus status;
    int64_t begin = now_ms();
    int r = client_call(client, CONTROL, "List", &request.base, 300, &reply, &status);

    check(r == -ETIMEDOUT, "no -ETIMEDOUT");
    check(now_ms() - begin >= 250, "ended too early");
    check(client_is_connected(client), "a deadline is no lost connection");
    check(!status.lost && !reply, "lost, or a reply");
    printf("%s: %s\n", grpc_status_name(status.code), status.message);
}

typedef struct Flood {
    unsigned sent, full_after, writable;
    uint64_t answered;
    bool ended;
    ClientStatus status;
    uint8_t data[100000];
} Flood;

static void flood_send(ClientStream *stream, Flood *flood)
{
    enum { MESSAGES = 200 };
    Dps__V1__EvaluateRequest request = DPS__V1__EVALUATE_REQUEST__INIT;
    Dps__V1__Tensor x = DPS__V1__TENSOR__INIT;

    x.data.data = flood->data;
    x.data.len = sizeof flood->data;
    request.x = &x;
    while (flood->sent < MESSAGES) {
        int r = client_stream_send(stream, &request.base);
        check(client_stream_queued(stream) <= CLIENT_SEND_QUEUE + 64, "the queue has no bound");
        if (r == -EAGAIN) {
            if (!flood->full_after)
                flood->full_after = flood->sent;
            return;
        }
        check(r == 0, "send failed");
        flood->sent++;
    }
    client_stream_close_send(stream);
}

static void flood_message(ClientStream *stream, const ProtobufCMessage *message, void *user)
{
    (void)stream;
    ((Flood *)user)->answered = ((const Dps__V1__EvaluateReply *)message)->samples;
}

static void flood_writable(ClientStream *stream, void *user)
{
    ((Flood *)user)->writable++;
    flood_send(stream, user);
}

static void flood_end(ClientStream *stream, const ClientStatus *status, void *user)
{
    Flood *flood = user;

    flood->ended = true;
    flood->status = *status;
    client_stream_free(stream); /* allowed here */
}

static void probe_flood(Client *client)
{
    static const ClientStreamHandler handler = {flood_message, flood_writable, flood_end};
    Flood *flood = calloc(1, sizeof *flood);
    ClientStream *stream;

    check(flood != NULL, "memory");
    check(client_stream_open(client, CONTROL, "Evaluate", -1, &handler, flood, &stream) == 0,
          "open");
    flood_send(stream, flood);
    while (!flood->ended)
        check(client_run_once(client, 10000) == 0, "lost");
    check(flood->status.code == GRPC_OK, flood->status.message);
    printf("full after %u, writable %u times, %llu answered\n", flood->full_after, flood->writable,
           (unsigned long long)flood->answered);
    check(flood->full_after > 0 && flood->full_after < 200 && flood->writable > 0, "never full");
    free(flood);
}

static void count_status(ClientStream *stream, const ProtobufCMessage *message, void *user)
{
    unsigned *count = user;

    (void)message;
    if (++*count == 10)
        client_stream_free(stream); /* cancels, in its own callback */
}

static void probe_both(Client *client)
{
    static const ClientStreamHandler handler = {.on_message = count_status};
    Dps__V1__WatchRequest watch = DPS__V1__WATCH_REQUEST__INIT;
    Dps__V1__ListRequest list = DPS__V1__LIST_REQUEST__INIT;
    ClientStream *stream;
    unsigned statuses = 0, lists = 0;

    watch.job = 3;
    check(client_stream_open(client, CONTROL, "Nothing", -1, &handler, &statuses, &stream) ==
              -EINVAL,
          "a method that is none");
    check(client_stream_open(client, CONTROL, "Watch", -1, &handler, &statuses, &stream) == 0,
          "open");
    check(client_stream_send(stream, &watch.base) == 0, "send");
    client_stream_close_send(stream);
    check(client_stream_send(stream, &watch.base) == -EPIPE, "send after close");
    for (; lists < 5; lists++) {
        ProtobufCMessage *reply;
        ClientStatus status;
        check(client_call(client, CONTROL, "List", &list.base, 5000, &reply, &status) == 0,
              status.message);
        check(((Dps__V1__ListReply *)reply)->n_jobs == 1, "jobs");
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    while (statuses < 10)
        check(client_run_once(client, 5000) == 0, "lost");
    client_run_once(client, 200); /* the cancellation leaves */
    check(statuses == 10, "statuses after free");
    printf("%u statuses, %u lists\n", statuses, lists);
}

static void drain(int fd, void *user)
{
    uint64_t count;

    check(read(fd, &count, sizeof count) == sizeof count, "nothing to read");
    ++*(unsigned *)user;
}

static void *wake_later(void *client)
{
    usleep(50000);
    client_wake(client);
    return NULL;
}

static void probe_wait(Client *client)
{
    const uint64_t one = 1;
    unsigned readable = 0;
    int fd = eventfd(0, EFD_CLOEXEC);
    int64_t begin;
    pthread_t thread;

    client_run_once(client, 300); /* the greeting */
    check(client_watch_fd(client, fd, drain, &readable) == 0, "watch");
    check(client_watch_fd(client, fd, drain, &readable) == -EEXIST, "watch twice");
    check(write(fd, &one, sizeof one) == sizeof one, "write");
    while (readable == 0)
        check(client_run_once(client, 20000) == 0, "lost");
    client_unwatch_fd(client, fd);
    begin = now_ms();
    pthread_create(&thread, NULL, wake_later, client);
    check(client_run_once(client, 20000) == 0 && now_ms() - begin < 15000, "not woken");
    pthread_join(thread, NULL);
    begin = now_ms();
    check(client_run_once(client, 100) == 0 && now_ms() - begin >= 90, "no wait");
    check(client_run_once(client, 0) == 0, "poll");
    puts("woken by descriptor, by thread, by time");
    close(fd);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(Client *client);
    } probes[] = {
        {"deadline", probe_deadline},
        {"flood", probe_flood},
        {"both", probe_both},
        {"wait", probe_wait},
    };
    Client *client;
    ClientStatus status;

    check(argc == 3, "usage: client_probe ADDRESS PROBE");
    check(client_open(argv[1], 5000, &client, &status) == 0, status.message);
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++)
        if (strcmp(probes[i].name, argv[2]) == 0)
            probes[i].run(client);
    client_free(client);
    return 0;
}
