#pragma once
// Ranks that are real processes of this test, so that they can be killed and stopped. A rank reports through a
// file; descriptors and mappings that outlive its Context are part of it.

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/system/unique_fd.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/worker_lib/support/leaks.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"

namespace ddp::testing {

using std::chrono::milliseconds;

/// Milliseconds on the clock that all processes of a machine share.
inline std::int64_t now_ms() {
    return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A store of files in a directory, which processes of one machine can share without a server. Waits by looking again.
class FileStore final : public Store {
public:
    explicit FileStore(std::filesystem::path directory) : directory_(std::move(directory)) {}

    void set(std::string_view key, std::string_view value) override {
        const auto temporary = directory_ / ("new-" + std::to_string(::getpid()));
        std::ofstream(temporary) << value;
        std::filesystem::rename(temporary, path_of(key));
    }
    std::string get(std::string_view key, milliseconds timeout) override {
        const auto deadline = std::chrono::steady_clock::now() + timeout;
        for (;;) {
            if (std::ifstream file(path_of(key)); file) return {std::istreambuf_iterator<char>(file), {}};
            if (std::chrono::steady_clock::now() > deadline)
                throw Error(ErrorCode::Timeout, "no key " + std::string(key));
            std::this_thread::sleep_for(milliseconds(1));
        }
    }
    std::string set_once(std::string_view key, std::string_view value) override {
        const auto temporary = directory_ / ("once-" + std::to_string(::getpid()));
        std::ofstream(temporary) << value;
        [[maybe_unused]] const int made = ::link(temporary.c_str(), path_of(key).c_str());  // fails where it exists
        ::unlink(temporary.c_str());  // or the next call would write into the same file
        return get(key, milliseconds(0));
    }
    std::int64_t add(std::string_view key, std::int64_t amount) override {
        const ddprun::UniqueFd lock(::open((directory_ / "lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
        ::flock(lock.get(), LOCK_EX);
        std::int64_t value = 0;
        std::ifstream(path_of(key)) >> value;
        set(key, std::to_string(value + amount));
        return value + amount;
    }
    std::string local_address() const override { return "127.0.0.1"; }

private:
    std::filesystem::path path_of(std::string_view key) const {
        std::string name(key);
        std::replace(name.begin(), name.end(), '/', '_');
        return directory_ / ("key-" + name);
    }
    std::filesystem::path directory_;
};

/// One rank per process. `body` returns the child's report, which the parent reads from a file; its exit code is 0.
class Processes {
public:
    using Body = std::function<std::string(Context&)>;

    Processes(const LocalWorld& world, const Body& body) {
        for (int rank = 0; rank < world.size(); ++rank) {
            const pid_t pid = ::fork();
            if (pid == 0) {
                run(world, rank, body);
                ::_exit(0);  // without the parent's exit handlers
            }
            pids_.push_back(pid);
        }
    }
    ~Processes() {
        for (const pid_t pid : pids_) {
            if (pid > 0) ::kill(pid, SIGKILL);
        }
        for (std::size_t rank = 0; rank < pids_.size(); ++rank) (void)wait(rank);
    }

    void kill(std::size_t rank, int signal) { ::kill(pids_[rank], signal); }
    int wait(std::size_t rank) {
        int status = 0;
        if (pids_[rank] > 0) ::waitpid(pids_[rank], &status, 0);
        pids_[rank] = 0;
        return status;
    }
    std::filesystem::path words_of(std::size_t rank) const {
        return directory_.path() / ("words-" + std::to_string(rank));
    }
    std::string words(std::size_t rank) {
        (void)wait(rank);
        return read_file(words_of(rank));
    }
    /// Through which the ranks report to the parent and each other how far they are.
    FileStore store() const { return FileStore(directory_.path()); }
    /// Returns when `rank` has set the key "running/<rank>".
    void wait_until_running(int rank) const {
        (void)store().get("running/" + std::to_string(rank), std::chrono::seconds(30));
    }

private:
    void run(const LocalWorld& world, int rank, const Body& body) const {
        std::string words;
        const std::size_t descriptors = open_descriptors();
        try {
            Context context(world.environment(rank), std::make_shared<FileStore>(directory_.path()), world.options());
            words = body(context);
        } catch (const Error& error) {
            words = "error " + std::to_string(static_cast<int>(error.code())) + ": " + error.what();
        }
        if (open_descriptors() != descriptors) words += ", descriptors left";
        if (shared_mappings() != 0) words += ", memory left";
        std::ofstream(words_of(static_cast<std::size_t>(rank))) << words;
    }

    TemporaryDirectory directory_;
    std::vector<pid_t> pids_;
};

}  // namespace ddp::testing
