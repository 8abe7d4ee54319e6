//===- ShardQOpBase.td - Shared definitions of ShardQ ops --*- tablegen -*-===//

#ifndef SHARDQ_IR_SHARDQOPBASE
#define SHARDQ_IR_SHARDQOPBASE

include "shardq/IR/ShardQAttrs.td"
include "shardq/IR/ShardQDialect.td"
include "shardq/IR/ShardQInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

/// A ranked tensor or memref of the given element types and ranks.
class ShardQ_Shaped<list<Type> elements, list<int> ranks>
    : AnyTypeOf<[TensorRankOf<elements, ranks>, MemRefRankOf<elements, ranks>]>;

def ShardQ_Float : AnyTypeOf<[BF16, F16, F32], "bf16, f16 or f32">;
/// What rows are made of where they are only moved: numbers, or the bytes of
/// quantized ones.
defvar ShardQ_MovedElements = [BF16, F16, F32, I8, F8E4M3FN, F8E5M2];
/// The same and indices: chosen positions travel with their rows.
defvar ShardQ_GatheredElements = !listconcat(ShardQ_MovedElements, [I32, I64]);
def ShardQ_SlotInt : AnyTypeOf<[I32, I64], "i32 or i64">;
def ShardQ_IntVector : ShardQ_Shaped<[I32], [1]>;
def ShardQ_IntMatrix : ShardQ_Shaped<[I32], [2]>;

class ShardQ_Op<string opMnemonic, list<Trait> traits = []>
    : Op<ShardQ_Dialect, opMnemonic, traits>;

/// An op on tensors or buffers. Every such op declares `outs` last among its
/// operands and the variadic `results`.
class ShardQ_TwoFormOp<string opMnemonic, list<Trait> traits = []>
    : ShardQ_Op<opMnemonic, [
        DeclareOpInterfaceMethods<ShardQ_TwoFormOpInterface>,
        DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
        DeclareOpInterfaceMethods<ConditionallySpeculatable>,
        DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>
      ] # traits> {
  let hasVerifier = 1;
}

/// For ops `over $mesh $axis`: checks that the mesh exists and has the axis.
defvar ShardQ_OnAxis = [DeclareOpInterfaceMethods<SymbolUserOpInterface>];

#endif // SHARDQ_IR_SHARDQOPBASE
