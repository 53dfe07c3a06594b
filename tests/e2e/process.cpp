#include "tests/e2e/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "common/ids.hpp"
#include "common/system/unique_fd.hpp"
#include "tests/catch.hpp"

extern char** environ;

namespace e2e {
namespace fs = std::filesystem;
namespace {

std::vector<std::string> listing(const fs::path& folder) {
    std::vector<std::string> names;
    std::error_code ignored;  // a folder that is not there has nothing left in it
    for (const auto& entry : fs::directory_iterator(folder, ignored)) names.push_back(entry.path().string());
    std::ranges::sort(names);
    return names;
}

std::vector<std::string> environment(const Sandbox& sandbox, const Command& command) {
    std::map<std::string, std::string> all;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string text = *entry;
        const auto equals = text.find('=');
        all[text.substr(0, equals)] = text.substr(equals + 1);
    }
    all["DDPRUN_TEST"] = sandbox.marker();
    all["TMPDIR"] = (sandbox.path() / "tmp").string();
    all["DDPRUN_CLUSTER_DIR"] = (sandbox.path() / "cluster").string();
    all["PYTHON_EXEC"] = "/usr/bin/python3";       // Debian's, which has torch; another python3 may come first on PATH
    all["DDPRUN_JOB_KEY"] = std::string(64, 'a');  // else the first one would be made in the user's home directory
    all.erase("DDPRUN_JOB_KEY_FILE");
    all.erase("LOGLEVEL");
    all["TSAN_OPTIONS"] += " halt_on_error=1";  // else a rank that ends by _exit(2) has the code of success
    for (const auto& [name, value] : command.env) all[name] = value;
    std::vector<std::string> lines;
    for (const auto& [name, value] : all) lines.push_back(name + "=" + value);
    return lines;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (std::string& text : texts) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
}

}  // namespace

bool eventually(Seconds limit, const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + limit;
    for (;;) {
        const bool is_last = std::chrono::steady_clock::now() > end;
        if (condition()) return true;
        if (is_last) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

Sandbox::Sandbox(const std::string& name)
    : path_(fs::temp_directory_path() / fmt::format("ddprun-test-{}-{}", name, ddprun::random_id().substr(0, 8))),
      marker_(path_.filename().string()),
      shared_memory_before_(listing("/dev/shm")) {
    fs::create_directories(path_ / "tmp");
}

Sandbox::~Sandbox() {
    for (const pid_t pid : pids()) ::kill(pid, SIGKILL);
    std::error_code ignored;  // what cannot be removed is reported by leftovers(), not by a destructor
    if (std::uncaught_exceptions() == 0)
        fs::remove_all(path_, ignored);
    else
        fmt::print(stderr, "the files of this failed test are in {}\n", path_.string());
}

std::vector<pid_t> Sandbox::pids(const std::string& command_contains) const {
    std::vector<pid_t> found;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
        const std::string name = entry.path().filename().string();
        if (name.find_first_not_of("0123456789") != std::string::npos) continue;
        if (read_file(entry.path() / "environ").find("DDPRUN_TEST=" + marker_) == std::string::npos) continue;
        std::string command = read_file(entry.path() / "cmdline");
        std::ranges::replace(command, '\0', ' ');
        if (command.find(command_contains) != std::string::npos) found.push_back(std::stoi(name));
    }
    std::ranges::sort(found);
    return found;
}

std::vector<std::string> Sandbox::processes() const {
    std::vector<std::string> lines;
    for (const pid_t pid : pids()) {
        std::string command = read_file(fmt::format("/proc/{}/cmdline", pid));
        std::ranges::replace(command, '\0', ' ');
        lines.push_back(fmt::format("{}: {}", pid, command));
    }
    return lines;
}

std::string Sandbox::leftovers() const {
    std::string report;
    const bool clean = eventually(Seconds(30), [&] {
        report.clear();
        for (const std::string& process : processes()) report += "process " + process + "\n";
        for (const std::string& name : listing("/dev/shm")) {
            if (!std::ranges::binary_search(shared_memory_before_, name)) report += "shared memory " + name + "\n";
        }
        for (const std::string& name : listing(path_ / "tmp")) report += "temporary " + name + "\n";
        return report.empty();
    });
    return clean ? "" : report;
}

Process::Process(const Sandbox& sandbox, const Command& command) {
    static int number = 0;
    out_ = sandbox.path() / fmt::format("{}.out", ++number);
    err_ = sandbox.path() / fmt::format("{}.err", number);

    std::vector<std::string> argv = command.argv;
    std::vector<std::string> env = environment(sandbox, command);
    const auto argv_pointers = pointers(argv);
    const auto env_pointers = pointers(env);

    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_addopen(&actions, 1, out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::posix_spawn_file_actions_addopen(&actions, 2, err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (!command.directory.empty()) ::posix_spawn_file_actions_addchdir_np(&actions, command.directory.c_str());
    const int error =
        ::posix_spawnp(&pid_, argv[0].c_str(), &actions, nullptr, argv_pointers.data(), env_pointers.data());
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw std::runtime_error(fmt::format("cannot start {}: error {}", argv[0], error));
}

Process::~Process() {
    if (!reaped_) {
        ::kill(pid_, SIGKILL);
        int status = 0;
        ::waitpid(pid_, &status, 0);
    }
}

void Process::signal(int number) const { ::kill(pid_, number); }

bool Process::running() {
    if (reaped_) return false;
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) return true;
    reaped_ = true;
    status_ = ddprun::exit_status_from_wait(status);
    return false;
}

ddprun::ExitStatus Process::wait(Seconds limit) {
    if (eventually(limit, [&] { return !running(); })) return status_;
    return {ddprun::ExitStatus::Kind::kSignaled, SIGALRM, false};
}

std::string Process::out() const { return read_file(out_); }
std::string Process::err() const {
    static const std::regex time_of_day(R"((^|\n)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d (?=\[ddprun))");
    return std::regex_replace(read_file(err_), time_of_day, "$1");
}

Outcome run(const Sandbox& sandbox, const Command& command, Seconds limit) {
    Process process(sandbox, command);
    const ddprun::ExitStatus status = process.wait(limit);
    return {status, process.out(), process.err()};
}

int free_port() {
    int first_given = 32768;  // the first port that the system gives to programs that ask for any
    std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first_given;
    std::random_device random;
    std::uniform_int_distribution<int> any(10'000, std::max(first_given, 11'000) - 1);
    for (int tries = 0; tries < 100; ++tries) {
        const ddprun::UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const int port = any(random);
        address.sin_port = htons(static_cast<std::uint16_t>(port));
        if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return port;
    }
    throw std::runtime_error("no free port on 127.0.0.1");
}

fs::path bin() { return DDPRUN_TEST_BIN; }

fs::path launcher() { return DDPRUN_TEST_LAUNCHER; }

fs::path source() { return DDPRUN_TEST_SOURCE; }

fs::path cluster_tools() {
    const char* folder = std::getenv("DDPRUN_CLUSTER_TOOLS");
    const fs::path tools = folder != nullptr ? fs::path(folder) : source() / "../shared/cluster";
    return fs::exists(tools / "hosts") ? fs::canonical(tools) : fs::path();
}

std::string read_file(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

void write_file(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

}  // namespace e2e
