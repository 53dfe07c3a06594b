#include "agent/output/label.hpp"

#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::agent;

TEST_CASE("a line is labelled with host and rank, or as a template says", "[agent]") {
    const LineSource source{"n1", "trainer", Rank{4}, {1}};
    CHECK(worker_label("", source) == "[n1:5] ");
    CHECK(worker_label("[${role_name}${local_rank}]: ", source) == "[trainer1]: ");
    CHECK(worker_label("$hostname/$rank ", source) == "n1/5 ");
    CHECK(worker_label("${rank", source) == "${rank");
    CHECK(worker_label("${ranks} $rank2 $ $$rank $", source) == "${ranks} $rank2 $ $rank $");
    CHECK(worker_label("plain", source) == "plain");
    const LineSource in_a_domain{"n1.cluster.example", "trainer", Rank{4}, {1}};
    CHECK(worker_label("${hostname} ", in_a_domain) == "n1 ");
    CHECK(worker_label("", in_a_domain) == "[n1.cluster.example:5] ");
}

TEST_CASE("unknown variables of a label are found", "[agent]") {
    using Names = std::vector<std::string>;
    CHECK(unknown_label_variables("${rnk}/$hst $rnk ${rank}: ") == Names{"${rnk}", "$hst", "$rnk"});
    CHECK(unknown_label_variables("$role_name ${local_rank} $rank ${hostname} $$rnk ${rnk $5 ${} $ ").empty());
}

TEST_CASE("a folded line is labelled with its ranks", "[agent]") {
    const LineSource one{"n1", "trainer", Rank{4}, {1}};
    const LineSource some{"n1", "trainer", Rank{4}, {0, 1, 2, 5, 7, 8}};
    CHECK(fold_label(one) == "[rank 5] ");
    CHECK(fold_label(some) == "[ranks 4-6,9,11-12] ");
    CHECK(worker_label("", some) == "[n1:4-6,9,11-12] ");
    CHECK(worker_label("${role_name}${local_rank}/${rank}: ", some) == "trainer0-2,5,7-8/4-6,9,11-12: ");
}
