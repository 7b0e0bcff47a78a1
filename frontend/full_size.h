#pragma once
// A hint that several operator families give.

namespace graphpipe::frontend {

/// What to do if the data of a batch would determine the size of a tensor.
inline constexpr char kFullSize[] =
    "keep the tensor as large as it can become (all positions, all samples) and mask what is not used";

}  // namespace graphpipe::frontend
