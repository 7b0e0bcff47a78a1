#pragma once
// Tensors from table rows: element types, shapes for a sample count, and the rows of a message within an item.
//
// A message carries the samples [first, last) of a value along its batch axis. Values without a batch axis that can be
// sliced (batch_axis -1) are sent whole, and item and message then have the same range.

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/program.h"
#include "wire/data_table.h"

namespace graphpipe::runtime {

at::ScalarType scalar_type(ElementType type);
using wire::element_name;
using wire::element_size;
using wire::shape_text;
/// None for a type that plans do not support.
std::optional<ElementType> element_type(at::ScalarType type);

/// The dims of `row` for an item of `samples`. Rejects overflow.
std::vector<int64_t> shape_of(const TensorRow& row, int64_t samples);
int64_t bytes_of(const TensorRow& row, int64_t samples);

/// On the GPU with this index, or on the CPU.
at::Tensor empty_tensor(const TensorRow& row, int64_t samples, int32_t gpu = -1);

/// The view of `item_value` (which holds the samples `item`) that holds the samples `message`.
at::Tensor rows_of(const at::Tensor& item_value, const TensorRow& row, wire::SampleRange item,
                   wire::SampleRange message);

/// The same rows, contiguous: what a send transfers. Rejects a value whose shape differs from the row's.
at::Tensor message_rows(const at::Tensor& item_value, const TensorRow& row, wire::SampleRange item,
                        wire::SampleRange message);

/// The bytes of a contiguous CPU tensor; an empty span for empty tensors.
std::span<std::byte> bytes_in(const at::Tensor& tensor);
/// The address of a contiguous tensor's first element, on any device; null if it has none.
std::byte* address_of(const at::Tensor& tensor);

}  // namespace graphpipe::runtime
