// TLS between virtual hosts (docs/design/027): on by default, a common key without any set-up, a clear message without
// one, nothing on the wire in clear.

#include <csignal>
#include <filesystem>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/e2e/hosts.hpp"

using e2e::eventually;
using e2e::Seconds;

namespace {

/// Writes every packet of its host to the file that is its argument.
constexpr const char* kCapture = R"(
import socket, sys
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
file = open(sys.argv[1], 'wb', 0)
file.write(b'begin')
while True:
    file.write(packets.recv(65535))
)";

/// A worker that runs until there is a file `end`, and shows whether it has the key.
constexpr const char* kWorker = "echo rank $RANK key ${DDPRUN_JOB_KEY-none}; until [ -e end ]; do sleep 0.05; done";

/// Returns a command on `host` for a user with the home directory `home` and without a key in the environment.
e2e::Command with_home(const e2e::Sandbox& sandbox, const e2e::Hosts& hosts, const std::string& host,
                       const std::string& home, std::vector<std::string> argv) {
    e2e::Command command = hosts.on(host, std::move(argv));
    if (!home.empty()) std::filesystem::create_directories(sandbox.path() / home);
    command.env = {{"HOME", home.empty() ? "" : (sandbox.path() / home).string()}, {"DDPRUN_JOB_KEY", ""}};
    return command;
}

std::vector<std::string> job(const std::vector<std::string>& options = {}) {
    std::vector<std::string> line{(e2e::bin() / "ddprun").string(),
                                  "--nnodes",
                                  "2",
                                  "--rdzv-endpoint",
                                  "n1:29400",
                                  "--rdzv-id",
                                  "a-name-in-clear"};
    line.insert(line.end(), options.begin(), options.end());
    line.insert(line.end(), {"sh", "-c", kWorker});
    return line;
}

bool shows(const e2e::Process& process, const std::string& text) {
    return process.out().find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("two hosts with a common home use TLS without any set-up, and the wire shows nothing", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("tls");
    e2e::write_file(sandbox.path() / "capture.py", kCapture);
    {
        const e2e::Hosts hosts(sandbox, 2);
        e2e::Process capture(sandbox, hosts.on("n1", {"/usr/bin/python3", "capture.py", "captured"}));
        REQUIRE(eventually(Seconds(20), [&] { return !e2e::read_file(sandbox.path() / "captured").empty(); }));
        e2e::Process second(sandbox, with_home(sandbox, hosts, "n2", "home", job()));
        e2e::Process first(sandbox, with_home(sandbox, hosts, "n1", "home", job()));
        const bool running = eventually(Seconds(30), [&] { return shows(first, "rank") && shows(second, "rank"); });
        CAPTURE(first.out(), first.err(), second.out(), second.err());
        REQUIRE(running);
        const auto status =
            e2e::run(sandbox, with_home(sandbox, hosts, "n2", "home",
                                        {(e2e::bin() / "ddpctl").string(), "status", "--rdzv-endpoint", "n1:29400"}));
        CAPTURE(status.err);
        CHECK(status.status.exit_code() == 0);
        e2e::write_file(sandbox.path() / "end", "");
        CHECK(first.wait(Seconds(30)).exit_code() == 0);
        CHECK(second.wait(Seconds(30)).exit_code() == 0);
        CHECK_THAT(first.err(), !Catch::Contains("INSECURE: 10."));

        const std::string captured = e2e::read_file(sandbox.path() / "captured");
        const std::string key = e2e::read_file(sandbox.path() / "home/.ddprun/job-key").substr(0, 64);
        std::string bytes;
        for (std::size_t i = 0; i < key.size(); i += 2)
            bytes += static_cast<char>(std::stoi(key.substr(i, 2), nullptr, 16));
        CHECK(key.size() == 64);
        CHECK((captured.find(std::string("\x16\x03\x01", 3)) != std::string::npos));  // a TLS handshake
        for (const std::string& text :
             {std::string("a-name-in-clear"), std::string("Ddprun-Channel"), std::string("\"type\""), key, bytes})
            CHECK((captured.find(text) == std::string::npos));
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a node with another key learns what to do, and joins when it has done that", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("tls-key");
    const e2e::Hosts hosts(sandbox, 2);
    e2e::write_file(sandbox.path() / "end", "");
    e2e::Process first(sandbox, with_home(sandbox, hosts, "n1", "home1", job()));
    const auto refused = e2e::run(sandbox, with_home(sandbox, hosts, "n2", "home2", job()));
    CAPTURE(refused.err);
    CHECK(refused.status.exit_code() == 69);
    CHECK_THAT(refused.err, Catch::Contains("the ddprund at n1:29400 has another job key than this node, whose key is "
                                            "from " +
                                            (sandbox.path() / "home2/.ddprun/job-key").string()));
    std::filesystem::copy_file(sandbox.path() / "home1/.ddprun/job-key", sandbox.path() / "home2/.ddprun/job-key",
                               std::filesystem::copy_options::overwrite_existing);
    e2e::Process second(sandbox, with_home(sandbox, hosts, "n2", "home2", job()));
    CHECK(second.wait(Seconds(30)).exit_code() == 0);
    CHECK(first.wait(Seconds(30)).exit_code() == 0);
    CAPTURE(first.err(), second.err());
    CHECK_THAT(first.err(), Catch::Contains("closed the connection of 10.") &&
                                Catch::Contains("it has another job key; all nodes need the same"));

    const auto homeless = e2e::run(sandbox, with_home(sandbox, hosts, "n1", "", job()));
    CHECK(homeless.status.exit_code() == 2);
    CHECK_THAT(homeless.err, Catch::Contains("HOME") && Catch::Contains("--insecure"));
}

TEST_CASE("a job of one node at an address of its host needs no home for its key", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("tls-alone");
    const e2e::Hosts hosts(sandbox, 1);
    e2e::write_file(sandbox.path() / "end", "");
    e2e::Command alone = with_home(sandbox, hosts, "n1", "", job());
    std::ranges::replace(alone.argv, "2", "1");
    const auto ended = e2e::run(sandbox, alone);
    CAPTURE(ended.err);
    CHECK(ended.status.exit_code() == 0);
    CHECK_THAT(ended.out, Catch::Contains("rank 0 key none"));
    alone.env["DDPRUN_JOB_KEY"] = "not a key";
    CHECK(e2e::run(sandbox, alone).status.exit_code() == 2);
}

TEST_CASE("a configuration of OpenSSL that forbids TLS is reported before anything is started", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("tls-configuration");
    const e2e::Hosts hosts(sandbox, 1);
    e2e::write_file(
        sandbox.path() / "openssl.cnf",  // FIPS mode without the module
        "openssl_conf = all\n[all]\nalg_section = algorithms\n[algorithms]\ndefault_properties = fips=yes\n");
    e2e::Command job_there = with_home(sandbox, hosts, "n1", "home", job());
    job_there.env["OPENSSL_CONF"] = (sandbox.path() / "openssl.cnf").string();
    const auto refused = e2e::run(sandbox, job_there);
    CAPTURE(refused.err);
    CHECK(refused.status.exit_code() == 2);
    CHECK_THAT(refused.err, Catch::Contains("cannot set up TLS 1.3") && Catch::Contains("OPENSSL_CONF=") &&
                                Catch::Contains("--insecure"));
}

TEST_CASE("a key in the environment is enough, and workers do not get it", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("tls-variable");
    const e2e::Hosts hosts(sandbox, 2);
    e2e::write_file(sandbox.path() / "end", "");
    const auto on = [&](const std::string& host) {
        e2e::Command command = with_home(sandbox, hosts, host, "", job());
        command.env["DDPRUN_JOB_KEY"] = std::string(64, '7');
        return command;
    };
    e2e::Process first(sandbox, on("n1"));
    e2e::Process second(sandbox, on("n2"));
    CHECK(first.wait(Seconds(60)).exit_code() == 0);
    CHECK(second.wait(Seconds(30)).exit_code() == 0);
    CAPTURE(first.err(), second.err());
    CHECK_THAT(first.out() + second.out(), Catch::Contains("rank 0 key none") && Catch::Contains("rank 1 key none"));
}

TEST_CASE("without TLS on all nodes a job works and warns, and a node that differs learns why", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("tls-insecure");
    const e2e::Hosts hosts(sandbox, 2);
    e2e::write_file(sandbox.path() / "end", "");
    {
        e2e::Process first(sandbox, with_home(sandbox, hosts, "n1", "", job({"--insecure"})));
        const auto refused = e2e::run(sandbox, with_home(sandbox, hosts, "n2", "home", job()));
        CHECK(refused.status.exit_code() == 69);
        CHECK_THAT(refused.err, Catch::Contains("the ddprund at n1:29400 uses no TLS: it was started with --insecure"));
        const auto second = e2e::run(sandbox, with_home(sandbox, hosts, "n2", "", job({"--insecure"})));
        CHECK(second.status.exit_code() == 0);
        CHECK(first.wait(Seconds(30)).exit_code() == 0);
        CHECK_THAT(first.err(), Catch::Contains("INSECURE: 10.") && Catch::Contains("--insecure turns off"));
        CHECK_THAT(second.err, Catch::Contains("INSECURE: --insecure turns off"));
    }
    e2e::Process first(sandbox, with_home(sandbox, hosts, "n1", "home", job()));
    const auto refused = e2e::run(sandbox, with_home(sandbox, hosts, "n2", "", job({"--insecure"})));
    CHECK(refused.status.exit_code() == 69);
    CHECK_THAT(refused.err, Catch::Contains("the ddprund at n1:29400 requires TLS"));
    first.signal(SIGTERM);
    CHECK_FALSE(first.wait(Seconds(30)).success());
}

TEST_CASE("a host without a node of the job reaches neither its store nor the store at the daemon's port", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("store-hosts");
    const e2e::Hosts hosts(sandbox, 3);
    // Asks the store at argv[1]:argv[2] for its number of keys: 8 bytes, or an end of the connection.
    e2e::write_file(sandbox.path() / "count.py", R"(
import socket, sys
client = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
client.sendall(b'\0\xce\xf7\x85\x3c\x07')
try:
    print('served' if len(client.recv(8)) == 8 else 'refused', flush=True)
except ConnectionError:
    print('refused', flush=True)
)");
    e2e::write_file(sandbox.path() / "worker.sh",
                    "echo $MASTER_ADDR $MASTER_PORT > store.part; mv store.part store\n"
                    "/usr/bin/python3 count.py $MASTER_ADDR $MASTER_PORT; until [ -e end ]; do sleep 0.05; done\n");
    const auto run_job = [&](const std::vector<std::string>& options) {
        std::vector<std::string> line = job(options);
        line.resize(line.size() - 2);
        line.push_back("worker.sh");
        return line;
    };
    const auto count_from = [&](const std::string& host, const std::string& address, const std::string& port) {
        return e2e::run(sandbox, hosts.on(host, {"/usr/bin/python3", "count.py", address, port})).out;
    };
    const bool insecure = GENERATE(false, true);
    const auto options = insecure ? std::vector<std::string>{"--insecure"} : std::vector<std::string>();
    e2e::Process first(sandbox, with_home(sandbox, hosts, "n1", "home", run_job(options)));
    e2e::Process second(sandbox, with_home(sandbox, hosts, "n2", "home", run_job(options)));
    const bool served = eventually(Seconds(30), [&] { return shows(first, "served") && shows(second, "served"); });
    CAPTURE(first.out(), first.err(), second.out(), second.err());
    REQUIRE(served);
    std::string address;
    std::string port;
    std::istringstream(e2e::read_file(sandbox.path() / "store")) >> address >> port;
    const std::string expected = insecure ? "served\n" : "refused\n";
    CHECK(count_from("n3", address, port) == expected);
    CHECK(count_from("n3", address, "29400") == expected);
    CHECK(count_from("n2", address, "29400") == "served\n");
    e2e::write_file(sandbox.path() / "end", "");
    CHECK(first.wait(Seconds(30)).exit_code() == 0);
    CHECK(second.wait(Seconds(30)).exit_code() == 0);
    if (!insecure) CHECK_THAT(first.err(), Catch::Contains("no node with workers of this job has joined from 10."));
    CHECK((first.err().find("INSECURE: the stores") == std::string::npos));
}
