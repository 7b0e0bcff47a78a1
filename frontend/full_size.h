#pragma once
// A hint that several families give.

namespace graphpipe::frontend {

/// What to do where the data of a batch would decide how large a tensor is.
inline constexpr char kFullSize[] =
    "keep the tensor as large as it can become (all positions, all samples) and mask what is not used";

}  // namespace graphpipe::frontend
