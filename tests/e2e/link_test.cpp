// Jobs on virtual hosts of which two cannot reach each other, while both reach the daemon on a third one. Skipped where
// the tools for such hosts are absent.

#include <signal.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/e2e/hosts.hpp"
#include "tests/e2e/process.hpp"
#include "tests/e2e/stalls.hpp"

namespace {

using Catch::Contains;

constexpr const char* kPresent = "LINK node n1 and node n2 cannot reach each other: rank ";
constexpr const char* kPast = "LINK node n1 and node n2 could not reach each other: rank ";

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
}

/// A job with one worker on each of the nodes, which runs `stalling what`. The first one has the daemon.
class Job {
public:
    Job(const e2e::Sandbox& sandbox, const e2e::Hosts& hosts, const std::vector<std::string>& names,
        const std::vector<std::string>& options, std::string what = "loop")
        : what_(std::move(what)) {
        for (const std::string& name : names) add(sandbox, hosts, name, names.front(), options);
    }
    void add(const e2e::Sandbox& sandbox, const e2e::Hosts& hosts, const std::string& name, const std::string& daemon,
             const std::vector<std::string>& options) {
        std::vector<std::string> all{"--nproc_per_node", "1", "--rdzv-endpoint", daemon + ":29400"};
        all.insert(all.end(), options.begin(), options.end());
        nodes_.emplace_back(sandbox, hosts.on(name, e2e::line(all, {STALLING, what_})));
    }

    /// Returns how often the workers have completed a thousand operations.
    [[nodiscard]] std::size_t progress() const {
        std::size_t lines = 0;
        for (const e2e::Process& node : nodes_) lines += count(node.out(), "looping\n");
        return lines;
    }
    [[nodiscard]] bool progresses() const {
        const std::size_t before = progress();
        return e2e::eventually(e2e::Seconds(60), [&] { return progress() > before + nodes_.size(); });
    }
    /// Waits until every node has printed `text`.
    [[nodiscard]] bool prints(const std::string& text, e2e::Seconds limit) const {
        return e2e::eventually(limit, [&] {
            return std::ranges::all_of(nodes_, [&](const e2e::Process& node) { return count(node.err(), text) > 0; });
        });
    }
    [[nodiscard]] std::string printed() const {
        std::string text;
        for (const e2e::Process& node : nodes_) text += "---- a node:\n" + node.err();
        return text;
    }
    void interrupt() {
        for (const e2e::Process& node : nodes_) node.signal(SIGINT);
        for (e2e::Process& node : nodes_) CHECK(node.wait(e2e::Seconds(60)).exit_code() == 130);
    }
    std::deque<e2e::Process>& nodes() { return nodes_; }

private:
    std::string what_;
    std::deque<e2e::Process> nodes_;
};

/// The end of a job because of the link between n1 and n2.
void check_end(Job& job) {
    for (e2e::Process& node : job.nodes()) CHECK(node.wait(e2e::Seconds(90)).exit_code() == 69);
    INFO(job.printed());
    const std::string err = job.nodes()[1].err();
    const auto box = err.find("INFRASTRUCTURE FAILURE");
    REQUIRE(box != std::string::npos);
    CHECK_THAT(err.substr(box), Contains(kPast) && Contains("although both nodes reached the daemon") &&
                                    Contains("First victim:") && !Contains("First failure:") && Contains("firewall"));
}

}  // namespace

TEST_CASE("a link that is cut for a moment is named within seconds, and the job goes on", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("link-heals");
    const e2e::Hosts hosts(sandbox, 3);
    Job job(sandbox, hosts, {"n3", "n1", "n2"}, {"--nnodes", "3"});
    REQUIRE(job.progresses());
    hosts.call({"partition", "n1", "n2"});
    const bool named = job.prints(kPresent, e2e::Seconds(12));
    hosts.call({"heal"});
    const bool goes_on = job.progresses();
    INFO(job.printed());
    CHECK(named);
    CHECK(goes_on);
    CHECK_THAT(job.printed(), !Contains("started again") && Contains("If they reach each other again within 15 s"));
    job.interrupt();
}

TEST_CASE("a link that stays cut ends the job, and no rank is accused", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("link-ends");
    const e2e::Hosts hosts(sandbox, 3);
    Job job(sandbox, hosts, {"n3", "n1", "n2"}, {"--nnodes", "3"});
    REQUIRE(job.progresses());
    hosts.call({"partition", "n1", "n2"});
    check_end(job);
}

TEST_CASE("a link that is cut while the workers compute is named when they have failed", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("link-rests");
    const e2e::Hosts hosts(sandbox, 3);
    Job job(sandbox, hosts, {"n3", "n1", "n2"}, {"--nnodes", "3"}, "rests");
    REQUIRE(e2e::eventually(e2e::Seconds(60), [&] { return job.progress() == 3; }));
    hosts.call({"partition", "n1", "n2"});
    check_end(job);
    CHECK_THAT(job.printed(), !Contains(kPresent) && Contains("it failed in "));
}

TEST_CASE("a link that is cut before the workers connect is named while they wait", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("link-init");
    const e2e::Hosts hosts(sandbox, 3);
    hosts.call({"partition", "n1", "n2"});
    Job job(sandbox, hosts, {"n3", "n1", "n2"}, {"--nnodes", "3"});
    const bool heals = GENERATE(true, false);
    const bool named = job.prints(kPresent, e2e::Seconds(25));
    INFO(job.printed());
    CHECK(named);
    if (!heals) return check_end(job);
    hosts.call({"heal"});
    CHECK(job.progresses());
    job.interrupt();
}

TEST_CASE("a firewall that drops the connections of workers is named, and ends the job after a minute", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("link-dropped");
    const e2e::Hosts hosts(sandbox, 3);
    const std::string rules =
        "add table inet cut; add chain inet cut in { type filter hook input priority 0; }; "
        "add rule inet cut in ip saddr 10.77.0.2 drop";
    hosts.call({"exec", "n1", "--", "nft", rules});
    Job job(sandbox, hosts, {"n3", "n1", "n2"}, {"--nnodes", "3"});
    const bool named = job.prints(kPresent, e2e::Seconds(25));
    INFO(job.printed());
    CHECK(named);
    check_end(job);
}

TEST_CASE("a spare node takes the place of one end of a link that stays cut", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("link-spare");
    const e2e::Hosts hosts(sandbox, 4);
    Job job(sandbox, hosts, {"n3", "n1", "n2"}, {"--nnodes", "3", "--max-restarts", "1"});
    REQUIRE(job.progresses());
    job.add(sandbox, hosts, "n4", "n3", {"--nnodes", "3", "--max-restarts", "1", "--spare"});
    hosts.call({"partition", "n1", "n2"});
    const bool replaced = e2e::eventually(e2e::Seconds(60), [&] {
        return count(job.printed(), "n4 takes the place of n") > 0;  // of n1 or n2
    });
    const bool goes_on = job.progresses();
    INFO(job.printed());
    CHECK(replaced);
    CHECK_THAT(job.printed(), Contains(kPast));
    CHECK(goes_on);
    job.interrupt();
}

TEST_CASE("a job of a range of nodes goes on without one end of a link that stays cut, and does not grow back",
          "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("link-range");
    const e2e::Hosts hosts(sandbox, 3);
    Job job(sandbox, hosts, {"n3", "n1", "n2"}, {"--nnodes", "2:3", "--max-restarts", "2"});
    REQUIRE(job.progresses());
    hosts.call({"partition", "n1", "n2"});
    const bool left_out = e2e::eventually(e2e::Seconds(60), [&] {
        return count(job.printed(), "this node could not reach another one, and is left out for an hour") > 0;
    });
    const bool goes_on = job.progresses();
    INFO(job.printed());
    CHECK(left_out);
    CHECK(goes_on);
    CHECK_THAT(job.printed(), Contains("restart 1 of 2: 2 workers on 2 nodes") && !Contains("restart 2 of 2"));
    job.interrupt();
}

TEST_CASE("a stopped worker with full sockets is late, and its link is not cut", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("link-choked");
    const e2e::Hosts hosts(sandbox, 3);
    Job job(sandbox, hosts, {"n3", "n1", "n2"}, {"--nnodes", "3", "--stall-warning", "15"}, "choked");
    CHECK(job.prints("LAGGING rank 1 ", e2e::Seconds(60)));
    INFO(job.printed());
    CHECK_THAT(job.printed(), !Contains("LINK"));
    job.interrupt();
}
