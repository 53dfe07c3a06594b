// All programs that are installed, as who types a line sees them: what they say of a wrong one.

#include <algorithm>

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

TEST_CASE("a wrong line is told by option, value and what it should be", "[e2e]") {
    const e2e::Sandbox sandbox("words");
    const auto wrong = GENERATE(values<Wrong>({
        {"ddprun", {"--master-port", "99999", "true"}, "--master-port 99999: not a whole number from 0 to 65535."},
        {"ddprund", {"--port", "99999"}, "--port: '99999' is not a port: a whole number from 0 to 65535."},
        {"ddprund", {"--port", "-1"}, "--port: '-1' is not a port: a whole number from 0 to 65535."},
        {"ddprund", {"--port", "http"}, "--port: 'http' is not a port: a whole number from 0 to 65535."},
        {"ddprund", {"--port"}, "--port: a value is missing."},
        {"ddprund", {"--linger", "0"}, "--linger: '0' is not a number of seconds from 0.001 to 10000000."},
        {"ddprund", {"--lingre", "3"}, "--lingre: no such option. Did you mean --linger?"},
        {"ddprund", {"mnist"}, "'mnist' belongs to no option."},
        {"ddpctl", {"dump", "--timeout", "soon"}, "--timeout: 'soon' is not a number of seconds from 0.1 to 3600."},
        {"ddpctl", {"dump", "--timeout", "1e9"}, "--timeout: '1e9' is not a number of seconds from 0.1 to 3600."},
        {"ddpctl", {"dump", "--timeout"}, "--timeout: a value is missing."},
        {"ddpctl", {"dump", "--tiemout=3"}, "--tiemout: no such option. Did you mean --timeout?"},
        {"ddpctl", {"--timeout", "3", "dump"}, "--timeout: no option of ddpctl itself. Write the command first: ddpctl dump"},
        {"ddpctl", {"--timeout"}, "--timeout: no option of ddpctl itself. Write the command first: ddpctl dump"},
        {"ddpctl", {}, "which command? Write ddpctl dump."},
        {"ddp-bench", {"--iterations", "0"}, "--iterations: '0' is no whole number from 1 to 100000000"},
        {"ddp-bench", {"--iterations"}, "--iterations: a value is missing"},
    }));
    const auto outcome = run(sandbox, wrong.program, wrong.arguments);
    CAPTURE(wrong.program, wrong.arguments);
    CHECK(outcome.status.exit_code() == exit_code::kUsage);
    CHECK_THAT(outcome.err, Catch::StartsWith(wrong.program + ": " + wrong.says));
    if (wrong.program != "ddprun") CHECK_THAT(outcome.err, Contains(wrong.program + " --help"));
    CHECK(outcome.out == "");
}

TEST_CASE("of an option that is given twice the last one counts", "[e2e]") {
    const e2e::Sandbox sandbox("twice");
    const auto outcome = run(sandbox, "ddprund", {"--port", "0", "--linger", "9", "--linger", "0.05"});
    CHECK_THAT(outcome.err, Contains("serves run"));
    CHECK(outcome.status.exit_code() == exit_code::kInfrastructure);  // nobody came
}
