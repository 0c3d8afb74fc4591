#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/bucket.h"
#include "net/server.h"

static Loop *loop;
static Server *server;
static char folder[64], path[96], address[128];

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/dps-net-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/s", folder);
    snprintf(address, sizeof address, "unix:%s", path);
    server = NULL;
    int r = loop_new(&loop);
    return r < 0 ? r : server_new(loop, &server_default_limits, NULL, 0, NULL, &server);
}

static int tear_down(void **state)
{
    (void)state;
    server_free(server);
    loop_free(loop);
    unlink(path);
    return rmdir(folder);
}

static void socket_file_has_mode_0660_and_goes_at_the_end(void **state)
{
    (void)state;
    struct stat status;
    mode_t old = umask(022);
    assert_int_equal(server_listen(server, address, NULL), 0);
    umask(old);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0660);
    assert_string_equal(server_listener(server, 0), address);
    assert_null(server_listener(server, 1));
    server = server_free(server);
    assert_int_not_equal(stat(path, &status), 0);
}

static void live_socket_is_refused_by_name(void **state)
{
    (void)state;
    Error err;
    assert_int_equal(server_listen(server, address, NULL), 0);
    Server *second;
    assert_int_equal(server_new(loop, &server_default_limits, NULL, 0, NULL, &second), 0);
    assert_int_equal(server_listen(second, address, &err), -EADDRINUSE);
    assert_non_null(strstr(err.message, path));
    server_free(second);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
}

static void stale_socket_is_replaced(void **state)
{
    (void)state;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
    close(fd);
    assert_int_equal(server_listen(server, address, NULL), 0);
}

static void file_that_is_no_socket_is_left_alone(void **state)
{
    (void)state;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    Error err;
    assert_int_equal(server_listen(server, address, &err), -EADDRINUSE);
    assert_non_null(strstr(err.message, "not a socket"));
    assert_int_equal(access(path, F_OK), 0);
}

static void malformed_addresses_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",        "unix:",        "tcp:",           "tcp:localhost",
        "tcp::80", "tcp:::1:80",   "tcp:[::1]",      "http://localhost:80",
        "/tmp/s",  "tcp:1.2.3.4:", "tcp:127.0.0.1:x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Error err = {0};
        assert_int_equal(server_listen(server, bad[i], &err), -EINVAL);
        assert_true(err.message[0] != '\0');
    }
    char longer[300] = "unix:/";
    memset(longer + 6, 'a', 200);
    assert_int_equal(server_listen(server, longer, NULL), -EINVAL);
}

static void port_0_is_told_by_the_listener(void **state)
{
    (void)state;
    Error err;
    int r = server_listen(server, "tcp:127.0.0.1:0", &err);
    assert_int_equal(r, 0);
    unsigned port = 0;
    assert_int_equal(sscanf(server_listener(server, 0), "tcp:127.0.0.1:%u", &port), 1);
    assert_true(port > 0);
    assert_int_equal(server_listen(server, server_listener(server, 0), NULL), -EADDRINUSE);
}

static void descriptor_that_does_not_listen_is_refused(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(server_listen_fd(server, fds[0], NULL), -EINVAL);
    close(fds[1]);
}

static void bucket_gives_a_burst_and_then_a_rate(void **state)
{
    (void)state;
    Bucket bucket;
    uint64_t now = 1000;
    bucket_init(&bucket, 100, now);
    for (int i = 0; i < 100; i++)
        assert_true(bucket_take(&bucket, now));
    assert_false(bucket_take(&bucket, now));
    now += 100 * USEC_PER_MSEC; /* 100 in 10 s: one in 0.1 s */
    assert_true(bucket_take(&bucket, now));
    assert_false(bucket_take(&bucket, now));
    now += 3600 * USEC_PER_SEC;
    for (int i = 0; i < 100; i++)
        assert_true(bucket_take(&bucket, now));
    assert_false(bucket_take(&bucket, now));
}

static void stop(void *data)
{
    loop_stop(data);
}

static void loop_runs_timers_and_tasks_until_it_is_stopped(void **state)
{
    (void)state;
    Timer timer = {.fire = stop, .data = loop};
    timer_arm(loop_timers(loop), &timer, 2000);
    assert_int_equal(loop_run(loop), 0);
    assert_false(timer_is_armed(&timer));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(socket_file_has_mode_0660_and_goes_at_the_end),
        TEST(live_socket_is_refused_by_name),
        TEST(stale_socket_is_replaced),
        TEST(file_that_is_no_socket_is_left_alone),
        TEST(malformed_addresses_are_refused),
        TEST(port_0_is_told_by_the_listener),
        TEST(descriptor_that_does_not_listen_is_refused),
        TEST(bucket_gives_a_burst_and_then_a_rate),
        TEST(loop_runs_timers_and_tasks_until_it_is_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
