// The bare multiplexer beside which bench_logs.py measures ddprun: starts N workers, reads their pipes, copies each to
// a file, and writes whole lines with a label to stdout. It does nothing else: no bounds, no last lines, no
// supervision.
//   multiplexer N FOLDER program [arguments]

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct Worker {
    int pipe = -1;
    int file = -1;
    std::string label;
    std::string rest;  ///< an unfinished line
};

void write_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::write(fd, bytes.data(), bytes.size());
        if (count <= 0) std::exit(1);
        bytes.remove_prefix(static_cast<std::size_t>(count));
    }
}

/// Passes on what the pipe of `worker` contains. Returns false at its end.
bool pass_on(Worker& worker) {
    static char buffer[64 << 10];
    const ssize_t count = ::read(worker.pipe, buffer, sizeof buffer);
    if (count <= 0) return false;
    const std::string_view bytes(buffer, static_cast<std::size_t>(count));
    write_all(worker.file, bytes);
    worker.rest += bytes;
    std::string lines;
    std::size_t begin = 0;
    for (std::size_t end; (end = worker.rest.find('\n', begin)) != std::string::npos; begin = end + 1) {
        lines += worker.label;
        lines.append(worker.rest, begin, end + 1 - begin);
    }
    worker.rest.erase(0, begin);
    write_all(STDOUT_FILENO, lines);
    return true;
}

Worker start(int rank, const std::string& folder, char** argv) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) std::exit(1);
    if (::fork() == 0) {
        ::dup2(ends[1], STDOUT_FILENO);
        ::execvp(argv[0], argv);
        ::_exit(127);
    }
    ::close(ends[1]);
    const std::string path = folder + "/rank-" + std::to_string(rank) + ".out";
    return {ends[0],
            ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600),
            "[default" + std::to_string(rank) + "]:",
            {}};
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 4) return 2;
    std::vector<Worker> workers;
    for (int rank = 0; rank < std::atoi(argv[1]); ++rank) workers.push_back(start(rank, argv[2], argv + 3));
    std::vector<pollfd> pipes;
    for (const Worker& worker : workers) pipes.push_back({worker.pipe, POLLIN, 0});
    for (std::size_t open = workers.size(); open > 0;) {
        ::poll(pipes.data(), pipes.size(), -1);
        for (std::size_t i = 0; i < pipes.size(); ++i) {
            if (pipes[i].revents == 0 || pass_on(workers[i])) continue;
            pipes[i].fd = -1;  // poll() ignores it from here on
            --open;
        }
    }
    while (::wait(nullptr) > 0) {
    }
}
