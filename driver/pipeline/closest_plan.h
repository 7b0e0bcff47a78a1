#pragma once
// What is said where no plan fits: how much more memory the plan needs that comes closest.

#include <optional>
#include <span>

#include "driver/pipeline/pipeline.h"

namespace graphpipe::driver {

struct Lack {
  ir::DeviceId device;
  Bytes bytes;
};

/// What a device lacks most for one of the plans, by the code of its stages and with as few samples in flight as it can
/// have: of the plan that lacks least. Nothing where none of them has an order. Needs: plans of the pipeline's graph
/// that keep the rules. Leaves the pipeline with one of them.
std::optional<Lack> smallest_lack(Pipeline& pipeline, std::span<const ir::Assignment> plans);

}  // namespace graphpipe::driver
