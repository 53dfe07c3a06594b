// A shared object that uses the library on its own: run (tests/install) links two of them, with each form of the
// library.
#include <ddp/ddp.hpp>

#include <memory>

namespace {
std::unique_ptr<ddp::Context> context;
}

// Makes a world of its own.
extern "C" void join() {
    context = std::make_unique<ddp::Context>(ddp::init_from_env({.backend = ddp::Backend::Native}));
}

extern "C" int sum_of_ones() {
    int value = 1;
    context->world().all_reduce(value, ddp::ReduceOp::Sum).wait();
    return value;
}

extern "C" void fail() {
    float value = 0;
    context->world().broadcast(value, 99).wait();
}

extern "C" void leave() { context.reset(); }
