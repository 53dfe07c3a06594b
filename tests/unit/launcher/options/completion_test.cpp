// The scripts of --print-completion: they parse in their shell, and complete options and values.

#include "launcher/options/completion.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "launcher/options/option_table.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"

using namespace ddprun::launcher;

namespace {

bool has_program(const std::string& name) {
    return std::system(fmt::format("command -v {} >/dev/null 2>&1", name).c_str()) == 0;
}

/// Runs a command line of the shell; returns its output with that on stderr, and the exit code in the end if it is not
/// 0.
std::string output_of(const std::string& line) {
    std::string text;
    FILE* const pipe = ::popen((line + " 2>&1").c_str(), "r");
    REQUIRE(pipe != nullptr);
    std::array<char, 4096> part{};
    for (std::size_t bytes = 0; (bytes = std::fread(part.data(), 1, part.size(), pipe)) > 0;)
        text.append(part.data(), bytes);
    const int status = ::pclose(pipe);
    return status == 0 ? text : fmt::format("{}status {}", text, status);
}

/// Returns what bash completes for the line, separated by blanks.
std::string completed_by_bash(const TemporaryDirectory& folder, const std::string& line) {
    const auto script = folder.file("try",
                                    fmt::format("set -u\nsource {}\nCOMP_LINE='{}' COMP_POINT={} COMPREPLY=()\n"
                                                "_ddprun\necho \"${{COMPREPLY[*]-}}\"\n",
                                                (folder.path() / "script").string(), line, line.size()),
                                    0600);
    std::string reply = output_of("bash " + script.string());
    if (reply.ends_with('\n')) reply.pop_back();
    return reply;
}

}  // namespace

TEST_CASE("each script names every option and parses in its shell", "[launcher][unit]") {
    const TemporaryDirectory folder;
    for (const std::string shell : {"bash", "zsh", "fish", "tcsh"}) {
        CAPTURE(shell);
        const auto script = completion_script(shell);
        REQUIRE(script.has_value());
        for (const OptionRow& row : option_table()) {
            CAPTURE(row.name);
            CHECK((script->find(std::string(row.name)) != std::string::npos) == !row.group.empty());
        }
        CHECK_THAT(*script, Catch::Contains("print-completion") && Catch::Contains("xpu"));
        const auto file = folder.file("script." + shell, *script, 0600);
        if (has_program(shell) && shell != "tcsh") CHECK(output_of(shell + " -n " + file.string()) == "");
        if (has_program(shell) && shell == "tcsh") CHECK(output_of("tcsh -f " + file.string()) == "");
    }
    CHECK_FALSE(completion_script("csh").has_value());
    CHECK_THAT(completion_script("zsh").value(), Catch::Contains(":report:_files'"));
    CHECK_THAT(completion_script("fish").value(), Catch::Contains("-l report -r -F "));
}

TEST_CASE("fish completes options, their values, and nothing of the program's", "[launcher][unit]") {
    if (!has_program("fish")) return;
    const TemporaryDirectory folder;
    const auto script = folder.file("script", completion_script("fish").value(), 0600).string();
    const auto reply = [&](const std::string& line) {
        const auto probe =
            folder.file("try", fmt::format("source {}\ncomplete -C '{}'\n", script, line), 0600).string();
        return output_of(fmt::format("cd {} && HOME={} fish {} | cut -f1 | xargs", folder.path().string(),
                                     folder.path().string(), probe));
    };
    CHECK(reply("ddprun --rdzv-e") == "--rdzv-endpoint\n");
    CHECK(reply("ddprun --nproc_per_node 2 --stan") == "--standalone\n");
    CHECK(reply("ddprun --start-method fo") == "fork forkserver\n");
    CHECK(reply("ddprun --nnodes 2 train.py --rdzv-e") == "\n");
    CHECK(reply("ddprun --nnodes 2 check --rdzv-e") == "--rdzv-endpoint\n");
    CHECK(reply("ddprun check --js") == "--json\n");
    CHECK(reply("ddprun --js") == "\n");
}

TEST_CASE("bash completes options, their values, and nothing of the program's", "[launcher][unit]") {
    if (!has_program("bash")) return;
    const TemporaryDirectory folder;
    folder.file("script", completion_script("bash").value(), 0600);
    std::filesystem::create_directories(folder.path() / "logs-here");
    const auto reply = [&](const std::string& line) { return completed_by_bash(folder, line); };
    CHECK(reply("ddprun --rdzv-e") == "--rdzv-endpoint");
    CHECK(reply("ddprun --rdzv_e") == "--rdzv-endpoint");
    CHECK(reply("ddprun --nnodes 2 --stan") == "--standalone");
    CHECK(reply("ddprun --nproc-per-node ") == "cpu gpu xpu auto");
    CHECK(reply("ddprun --nproc_per_node c") == "cpu");
    CHECK(reply("ddprun --nproc-per-node=a") == "auto");
    CHECK(reply("ddprun --nproc-per-node=2 --start-method fo") == "fork forkserver");
    CHECK(reply("ddprun --rdzv-endpoint n1:29400 --print-completion ") == "bash zsh fish tcsh");
    CHECK(reply("ddprun --log-dir " + folder.path().string() + "/log") == folder.path().string() + "/logs-here");
    CHECK(reply("ddprun ") == "");  // files
    CHECK(reply("ddprun --nnodes 2 train.py --rdzv-e") == "");
    CHECK(reply("ddprun -- --rdzv-e") == "");
    CHECK(reply("ddprun --nnodes 2 check --rdzv-e") == "--rdzv-endpoint");
    CHECK(reply("ddprun check --js") == "--json");
    CHECK(reply("ddprun check --json ") == "");  // files
    CHECK(reply("ddprun check --json out --stan") == "--standalone");
    CHECK(reply("ddprun --js") == "");
    CHECK(reply("ddprun train.py check --rdzv-e") == "");
}
