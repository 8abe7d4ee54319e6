//===- ShardQInterfaces.td - Interfaces of ShardQ ops ------*- tablegen -*-===//

#ifndef SHARDQ_IR_SHARDQINTERFACES
#define SHARDQ_IR_SHARDQINTERFACES

include "mlir/IR/OpBase.td"

def ShardQ_TwoFormOpInterface : OpInterface<"TwoFormOpInterface"> {
  let cppNamespace = "::mlir::shardq";
  let description = [{
    An op that exists on tensors (results and no `outs`) and on buffers (`outs` and no
    results). The n-th of `outs` has the shape and element type of the n-th result.
  }];
  let methods = [
    InterfaceMethod<"The destinations; empty on tensors.", "::mlir::OperandRange",
                    "getOuts", (ins)>,
    InterfaceMethod<"The operands before the destinations.", "::mlir::OperandRange",
                    "getIns", (ins), [{}], [{
      return $_op->getOperands().drop_back($_op.getOuts().size());
    }]>,
    InterfaceMethod<"Whether this is the buffer form.", "bool", "isOnBuffers", (ins),
                    [{}], [{ return !$_op.getOuts().empty(); }]>,
    InterfaceMethod<"Type of the n-th result or destination.", "::mlir::ShapedType",
                    "getOutType", (ins "unsigned":$n), [{}], [{
      ::mlir::Type type = $_op.getOuts().empty() ? $_op->getResult(n).getType()
                                                 : $_op.getOuts()[n].getType();
      return ::llvm::cast<::mlir::ShapedType>(type);
    }]>,
    InterfaceMethod<"Number of results or destinations.", "unsigned", "getNumOuts", (ins),
                    [{}], [{
      return $_op.getOuts().empty() ? $_op->getNumResults() : $_op.getOuts().size();
    }]>
  ];
}

def ShardQ_RowWiseOpInterface : OpInterface<"RowWiseOpInterface"> {
  let cppNamespace = "::mlir::shardq";
  let description = [{
    Row `i` of every result depends on row `i` of the row operands and on the whole of
    the other operands alone. So the op on chosen rows is the op on `take_rows` of
    each row operand: this is all that token sharding needs to know.
  }];
  let methods = [
    InterfaceMethod<"Whether the operand has one entry per row.", "bool",
                    "isRowOperand", (ins "::mlir::OpOperand &":$operand)>
  ];
}

def ShardQ_CollectiveOpInterface : OpInterface<"CollectiveOpInterface"> {
  let cppNamespace = "::mlir::shardq";
  let description = [{
    An op of level 2 or 3 that all ranks of a group run together: each pushes rows into
    the inboxes of the others. `--shardq-plan-workspace` makes `push`, `signal` and `wait` of it.
  }];
  let verify = [{
    return ::mlir::shardq::detail::verifyTransport(::llvm::cast<CollectiveOpInterface>($_op));
  }];
  let methods = [
    InterfaceMethod<"The mesh of the group.", "::mlir::FlatSymbolRefAttr", "getMeshAttr", (ins)>,
    InterfaceMethod<"The axis of the group.", "::mlir::StringAttr", "getAxisAttr", (ins)>,
    InterfaceMethod<"What moves where.", "::mlir::shardq::Direction", "getDirection", (ins)>,
    InterfaceMethod<"Type of the inbox of the buffer form.", "::mlir::MemRefType",
                    "getInboxType", (ins)>,
    InterfaceMethod<"How the rows travel, and why; null while nobody has chosen.",
                    "::mlir::shardq::TransportAttr", "getTransportAttr", (ins)>,
    InterfaceMethod<"Chooses how the rows travel.", "void", "setTransportAttr",
                    (ins "::mlir::shardq::TransportAttr":$transport)>
  ];
}

#endif // SHARDQ_IR_SHARDQINTERFACES
