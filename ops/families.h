#pragma once
// The op families. Each file ops/<family>.cpp provides its entries through one function; ops/registry.cpp lists them.

#include <span>

#include "ops/op_def.h"

namespace graphpipe::ops {

std::span<const OpDef> attention_ops();
std::span<const OpDef> linear_ops();
std::span<const OpDef> rotary_ops();
std::span<const OpDef> unary_ops();
std::span<const OpDef> binary_ops();
std::span<const OpDef> power_ops();
std::span<const OpDef> bitwise_ops();
std::span<const OpDef> reduce_ops();
std::span<const OpDef> shape_ops();
std::span<const OpDef> movement_ops();
std::span<const OpDef> index_ops();
std::span<const OpDef> scatter_ops();
std::span<const OpDef> gather_nd_ops();
std::span<const OpDef> order_ops();
std::span<const OpDef> clip_ops();
std::span<const OpDef> pad_ops();
std::span<const OpDef> matmul_ops();
std::span<const OpDef> softmax_ops();
std::span<const OpDef> loss_ops();
std::span<const OpDef> cross_entropy_ops();
std::span<const OpDef> norm_ops();
std::span<const OpDef> group_norm_ops();
std::span<const OpDef> batch_norm_ops();
std::span<const OpDef> lrn_ops();
std::span<const OpDef> conv_ops();
std::span<const OpDef> pool_ops();
std::span<const OpDef> random_ops();
std::span<const OpDef> onnx_loss_ops();
std::span<const OpDef> einsum_ops();
std::span<const OpDef> fourier_ops();
std::span<const OpDef> resize_ops();
std::span<const OpDef> grid_sample_ops();
std::span<const OpDef> recurrent_ops();
std::span<const OpDef> determinant_ops();
std::span<const OpDef> region_ops();
std::span<const OpDef> gradient_flow_ops();

}  // namespace graphpipe::ops
