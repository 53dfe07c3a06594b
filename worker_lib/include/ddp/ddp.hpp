#pragma once
// ddp: data-parallel training in C++. One include for a trainer; see worker_lib/examples/train for the tutorial.

/// @namespace ddp
/// Data-parallel training in C++.

#include "ddp/bucket_plan.hpp"
#include "ddp/buffer.hpp"
#include "ddp/checkpoint.hpp"
#include "ddp/checkpoint_state.hpp"
#include "ddp/collectives.hpp"
#include "ddp/comm_hook.hpp"
#include "ddp/context.hpp"
#include "ddp/error.hpp"
#include "ddp/float16.hpp"
#include "ddp/join.hpp"
#include "ddp/local_steps.hpp"
#include "ddp/loss_scaler.hpp"
#include "ddp/mesh.hpp"
#include "ddp/phase.hpp"
#include "ddp/power_sgd.hpp"
#include "ddp/preemption.hpp"
#include "ddp/process_group.hpp"
#include "ddp/reducer.hpp"
#include "ddp/sampler.hpp"
#include "ddp/sharding.hpp"
#include "ddp/store.hpp"
#include "ddp/transfer_batch.hpp"
#include "ddp/types.hpp"
#include "ddp/version.hpp"
#include "ddp/work.hpp"
