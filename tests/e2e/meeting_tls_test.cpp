// A real etcd with TLS, client certificates and users: what a job needs to meet there, and the message for each part
// that is missing.

#include <fmt/format.h>
#include <signal.h>

#include "tests/catch.hpp"
#include "tests/e2e/meeting.hpp"

using namespace e2e;

namespace {

// An authority, and certificates of etcd (for the name localhost, not for its address) and of a client.
constexpr const char* kMakeCertificates = R"(set -e
exec 2>/dev/null
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem
for name in server client; do
    openssl req -newkey rsa:2048 -nodes -subj /O=$name -keyout $name.key -out $name.csr
    echo subjectAltName=DNS:localhost >$name.ext
    openssl x509 -req -days 2 -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile $name.ext -out $name.pem
done
)";

// Makes a user 'job' with the password 'secret'; it may use keys below ddprun/ only.
constexpr const char* kMakeUsers = R"(
import base64, json, ssl, sys, urllib.request
context = ssl.create_default_context(cafile='ca.pem')
context.load_cert_chain('client.pem', 'client.key')
def call(path, **fields):
    request = urllib.request.Request(sys.argv[1] + '/v3/' + path, json.dumps(fields).encode())
    return urllib.request.urlopen(request, context=context, timeout=10).read()
def text(value): return base64.b64encode(value).decode()
call('maintenance/status')
if len(sys.argv) > 2: sys.exit()
call('auth/user/add', name='root', password='r')
call('auth/role/add', name='root')
call('auth/user/grant', user='root', role='root')
call('auth/user/add', name='job', password='secret')
call('auth/role/add', name='jobs')
call('auth/role/grant', name='jobs', perm=dict(permType='READWRITE', key=text(b'ddprun/'), range_end=text(b'ddprun0')))
call('auth/user/grant', user='job', role='jobs')
call('auth/enable')
)";

std::vector<std::string> etcd_with_tls(int port, int peer_port) {
    const std::string url = fmt::format("https://localhost:{}", port);
    const std::string peer_url = fmt::format("http://127.0.0.1:{}", peer_port);
    return {"etcd",
            "--data-dir",
            "data",
            "--listen-client-urls",
            fmt::format("https://127.0.0.1:{}", port),
            "--advertise-client-urls",
            url,
            "--listen-peer-urls",
            peer_url,
            "--initial-advertise-peer-urls",
            peer_url,
            "--initial-cluster",
            "default=" + peer_url,
            "--cert-file",
            "server.pem",
            "--key-file",
            "server.key",
            "--trusted-ca-file",
            "ca.pem",
            "--client-cert-auth"};
}

bool is_missing(const Sandbox& sandbox, const char* program) {
    if (run(sandbox, {.argv = {"sh", "-c", fmt::format("command -v {}", program)}}).status.success()) return false;
    WARN("SKIPPED: " << program << " is not installed");
    return true;
}

}  // namespace

TEST_CASE("nodes meet in an etcd with TLS and users, and each missing part has a message", "[e2e]") {
    const Sandbox sandbox("meeting-tls");
    for (const char* program : {"etcd", "openssl", "python3"}) {
        if (is_missing(sandbox, program)) return;
    }
    const auto& folder = sandbox.path();
    write_file(folder / "users.py", kMakeUsers);
    const auto made = run(sandbox, {.argv = {"sh", "-c", kMakeCertificates}, .directory = folder});
    INFO(made.err);
    REQUIRE(made.status.success());
    const int port = free_port();
    const std::string url = fmt::format("https://localhost:{}", port);
    Process etcd(sandbox, {.argv = etcd_with_tls(port, free_port()), .directory = folder});
    const auto ready = [&] {
        return run(sandbox, {.argv = {"python3", "users.py", url, "wait"}, .directory = folder}).status.success();
    };
    REQUIRE(eventually(Seconds(60), ready));
    const auto users = run(sandbox, {.argv = {"python3", "users.py", url}, .directory = folder});
    INFO(users.err);
    REQUIRE(users.status.success());

    const std::string server = fmt::format("localhost:{}", port);
    const std::string at = (folder / "").string();
    const std::string authority = fmt::format("protocol=https,cacert={}ca.pem", at);
    const std::string certificate = fmt::format(",cert={0}client.pem,key={0}client.key", at);
    const std::map<std::string, std::string> password{{"DDPRUN_ETCD_PASSWORD", "secret"}};
    const auto options = [&](const std::string& conf) { return etcd_options(server, 2, {"--rdzv-conf", conf}); };
    run_job(sandbox, options(authority + certificate + ",username=job"), 2, password);

    const auto error_of = [&](const Words& words, const std::string& word = "secret") {
        const auto outcome =
            run(sandbox, {.argv = ddprun_line(words), .env = {{"DDPRUN_ETCD_PASSWORD", word}}}, Seconds(30));
        CHECK(outcome.status.exit_code() == 69);
        return outcome.err;
    };
    using Catch::Contains;
    CHECK_THAT(error_of(options("read_timeout=1.5")),
               Contains("If etcd there uses TLS, pass --rdzv-conf protocol=https"));
    CHECK_THAT(error_of(options("protocol=https" + certificate)),
               Contains("the TLS certificate of " + server + " is not accepted: ") && Contains("cacert=FILE"));
    CHECK_THAT(error_of(etcd_options(fmt::format("127.0.0.1:{}", port), 1, {"--rdzv-conf", authority + certificate})),
               Contains("is not accepted: IP address mismatch"));
    CHECK_THAT(error_of(options(authority)),
               Contains("no TLS connection to " + server) && Contains("cert=FILE,key=FILE"));
    CHECK_THAT(error_of(options(authority + certificate)), Contains("username=NAME"));
    CHECK_THAT(error_of(options(authority + certificate + ",username=job"), "wrong"),
               Contains("cannot log in to etcd at " + server + " as user 'job': etcdserver: authentication failed"));
    CHECK_THAT(error_of(options(authority + certificate + ",username=job,etcd_prefix=other")),
               Contains("refuses the key of this job as user 'job': etcdserver: permission denied"));
    etcd.signal(SIGTERM);
    (void)etcd.wait(Seconds(20));
    CHECK(sandbox.leftovers() == "");
}
