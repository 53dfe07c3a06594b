// All installed programs as their users see them: --help, --version, and messages for a wrong command line.

#include <filesystem>
#include <fstream>

#include "common/exit_codes.hpp"
#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

namespace {

namespace exit_code = ddprun::exit_code;
using Catch::Contains;

e2e::Outcome run(const e2e::Sandbox& sandbox, const std::string& program, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), (e2e::bin() / program).string());
    return e2e::run(sandbox, {.argv = std::move(arguments), .directory = sandbox.path()}, e2e::Seconds(30));
}

struct Wrong {
    std::string program;
    std::vector<std::string> arguments;
    std::string says;  ///< at the beginning of the line, behind the program's name
};

}  // namespace

TEST_CASE("a wrong command line is reported with option, value and what it should be", "[e2e]") {
    const e2e::Sandbox sandbox("words");
    const auto wrong = GENERATE(values<Wrong>({
        {"ddprun", {"--master-port", "99999", "true"}, "--master-port 99999: not a whole number from 0 to 65535."},
        {"ddprund", {"--port", "99999"}, "--port: '99999' is not a port: a whole number from 0 to 65535."},
        {"ddprund", {"--port", "-1"}, "--port: '-1' is not a port: a whole number from 0 to 65535."},
        {"ddprund", {"--port", "http"}, "--port: 'http' is not a port: a whole number from 0 to 65535."},
        {"ddprund", {"--port"}, "--port: a value is missing."},
        {"ddprund", {"--linger", "0"}, "--linger: '0' is not a number of seconds from 0.001 to 31536000."},
        {"ddprund", {"--lingre", "3"}, "--lingre: no such option. Did you mean --linger?"},
        {"ddprund", {"mnist"}, "unexpected argument 'mnist'."},
        {"ddpctl", {"dump", "--timeout", "soon"}, "--timeout: 'soon' is not a number of seconds from 0.1 to 3600."},
        {"ddpctl", {"dump", "--timeout", "1e9"}, "--timeout: '1e9' is not a number of seconds from 0.1 to 3600."},
        {"ddpctl", {"dump", "--timeout"}, "--timeout: a value is missing."},
        {"ddpctl", {"dump", "--tiemout=3"}, "--tiemout: no such option. Did you mean --timeout?"},
        {"ddpctl",
         {"--timeout", "3", "dump"},
         "--timeout: not an option of ddpctl. Write options after the command: ddpctl dump"},
        {"ddpctl",
         {"--timeout"},
         "--timeout: not an option of ddpctl. Write options after the command: ddpctl COMMAND"},
        {"ddpctl", {}, "which command? Write ddpctl status, dump, drain, undrain, preempt or checkpoint."},
        {"ddpctl", {"drian", "n1"}, "there is no command 'drian'. Did you mean drain?"},
        {"ddpctl", {"drain"}, "which node? Write ddpctl drain NODE."},
        {"ddpctl", {"undrain", ""}, "which node? Write ddpctl undrain NODE."},
        {"ddpctl", {"drain", "n1", "n2"}, "unexpected argument 'n2'."},
        {"ddpctl", {"drain", "n1", "--al"}, "--al: no such option."},
        {"ddpctl", {"status", "n1"}, "unexpected argument 'n1'."},
        {"ddpctl", {"status", "--al"}, "--al: no such option. Did you mean --all?"},
        {"ddpctl", {"status", "--decisions", "201"}, "--decisions: '201' is not a whole number from 0 to 200."},
        {"ddp-bench", {"--iterations", "0"}, "--iterations: '0' is not a whole number from 1 to 100000000"},
        {"ddp-fr-trace", {}, "which folder? Write ddp-fr-trace DIR"},
        {"ddp-fr-trace", {"-j", "DIR"}, "-j: no such option. Options of fr_trace go after DIR."},
        {"ddp-bench", {"--iterations"}, "--iterations: a value is missing"},
    }));
    const auto outcome = run(sandbox, wrong.program, wrong.arguments);
    CAPTURE(wrong.program, wrong.arguments);
    CHECK(outcome.status.exit_code() == exit_code::kUsage);
    CHECK_THAT(outcome.err, Catch::StartsWith(wrong.program + ": " + wrong.says));
    if (wrong.program != "ddprun") CHECK_THAT(outcome.err, Contains(wrong.program + " --help"));
    CHECK(outcome.out == "");
}

TEST_CASE("every program prints its help and its version, and refuses what it does not know with exit code 2",
          "[e2e]") {
    const e2e::Sandbox sandbox("help");
    const std::string program = GENERATE("ddprun", "ddprund", "ddpctl", "ddp-bench", "ddp-fr-trace");
    CAPTURE(program);
    for (const std::string option : {"--help", "-h", "--version"}) {
        const auto outcome = run(sandbox, program, {option});
        CAPTURE(option, outcome.err);
        CHECK(outcome.status.exit_code() == exit_code::kSuccess);
        CHECK(outcome.err == "");
        CHECK_THAT(outcome.out, Catch::Matches(option == "--version" ? program + " [0-9.]+\n" : "[^]*-h, ?--help[^]*"));
    }
    const auto refused = run(sandbox, program, {"--no-such-option"});
    CHECK(refused.status.exit_code() == exit_code::kUsage);
    CHECK_THAT(refused.err, Contains("--no-such-option") && Contains(program + " --help"));
    CHECK(refused.out == "");
}

TEST_CASE("ddprund and ddpctl are the ddprun beside them, by whatever link they are started", "[e2e]") {
    const e2e::Sandbox sandbox("names");
    const std::string program = GENERATE("ddprund", "ddpctl");
    CAPTURE(program);
    std::filesystem::create_symlink(e2e::bin() / program, sandbox.path() / "link");
    CHECK_THAT(run(sandbox, sandbox.path() / "link", {"--version"}).out, Catch::StartsWith(program + " "));
    std::filesystem::create_symlink(e2e::bin() / "ddprun", sandbox.path() / "ddprun");
    CHECK_THAT(run(sandbox, sandbox.path() / "ddprun", {"--version"}).out, Catch::StartsWith("ddprun "));
    std::filesystem::remove(sandbox.path() / "ddprun");
    const std::filesystem::path copy = sandbox.path() / program;
    std::filesystem::copy_file(e2e::bin() / program, copy);
    const auto alone = run(sandbox, copy, {"--version"});
    CHECK(alone.status.exit_code() == exit_code::kInfrastructure);
    CHECK(alone.err == program + ": cannot execute " + (sandbox.path() / "ddprun").string() +
                           ": No such file or directory. Install ddprun again.\n");
}

TEST_CASE("ddp-fr-trace says which folder has no dump, and which file of it is damaged", "[e2e]") {
    const e2e::Sandbox sandbox("fr");
    const auto empty = run(sandbox, "ddp-fr-trace", {"dumps"});
    CHECK(empty.status.exit_code() == exit_code::kUsage);
    CHECK(empty.err == "ddp-fr-trace: no rank_N.json in dumps. Write them with `ddpctl dump --output dumps`\n");
    std::filesystem::create_directory(sandbox.path() / "dumps");
    std::ofstream(sandbox.path() / "dumps/rank_0.json") << "{\"entries\": [";
    const auto damaged = run(sandbox, "ddp-fr-trace", {"dumps"});
    CHECK(damaged.status.exit_code() == exit_code::kUsage);
    CHECK_THAT(damaged.err, Catch::StartsWith("ddp-fr-trace: cannot read dumps/rank_0.json: Expecting value: ") &&
                                Catch::EndsWith("Write it again with `ddpctl dump --output dumps`\n"));
}

TEST_CASE("ddp-fr-trace gives PyTorch the dump as it wants it, and says so where there is none", "[e2e]") {
    const e2e::Sandbox sandbox("fr-torch");
    const auto recorder = sandbox.path() / "torch/distributed/flight_recorder";
    std::filesystem::create_directories(recorder);
    for (auto package = recorder; package != sandbox.path(); package = package.parent_path())
        std::ofstream(package / "__init__.py").flush();  // else one that is installed would come first
    std::ofstream(sandbox.path() / "rank_0.json") << "{\"entries\": 7}";
    const auto trace = [&](const std::string& modules) {
        return e2e::run(sandbox, {.argv = {(e2e::bin() / "ddp-fr-trace").string(), ".", "-j"},
                                  .env = {{"PYTHONPATH", modules}},
                                  .directory = sandbox.path()});
    };
    std::ofstream(recorder / "fr_trace.py") << "raise ImportError\n";
    const auto without = trace(sandbox.path());
    CHECK(without.status.exit_code() == exit_code::kInfrastructure);
    CHECK_THAT(without.err, Contains(" has no torch.distributed.flight_recorder. Set PYTHON_EXEC to ") &&
                                Contains(" newer PyTorch\n"));
    std::ofstream(recorder / "fr_trace.py") << "import pickle\ndef main(args):\n"
                                               "    print(args[1:], pickle.load(open(args[0] + '/rank_0', 'rb')))\n";
    const auto with = trace(sandbox.path());
    CHECK(with.status.success());
    CHECK(with.out == "['--prefix', 'rank_', '-j'] {'entries': 7}\n");
    const auto python = sandbox.path() / "other-python";
    e2e::write_file(python, "#!/bin/sh\necho \"other $*\"\n");
    const auto chosen = [&](const std::string& named) {
        return e2e::run(sandbox, {.argv = {(e2e::bin() / "ddp-fr-trace").string(), ".", "-j"},
                                  .env = {{"PYTHON_EXEC", named}},
                                  .directory = sandbox.path()});
    };
    CHECK(chosen(python).err ==
          "ddp-fr-trace: PYTHON_EXEC=" + python.string() + ": cannot run that interpreter: Permission denied\n");
    std::filesystem::permissions(python, std::filesystem::perms::owner_all);
    CHECK_THAT(chosen(python).out, Catch::StartsWith("other ") && Catch::EndsWith("/ddp-fr-trace . -j\n"));
}

TEST_CASE("of an option that is given twice the last one counts", "[e2e]") {
    const e2e::Sandbox sandbox("twice");
    const auto outcome = run(sandbox, "ddprund", {"--port", "0", "--linger", "9", "--linger", "0.05"});
    CHECK_THAT(outcome.err, Contains("serves run"));
    CHECK(outcome.status.exit_code() == exit_code::kInfrastructure);  // no agent came
}
