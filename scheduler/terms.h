#pragma once
// The nouns of ir/ that the whole scheduler speaks of.

#include "ir/schedule.h"

namespace graphpipe::scheduler {

using ir::Action;
using ir::ActionOp;
using ir::replica_key;
using ir::ReplicaKey;
using ir::SampleRange;
using ir::Schedule;
using ir::StageGraph;
using ir::StageId;

}  // namespace graphpipe::scheduler
