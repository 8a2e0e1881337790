package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// cpu generates what asks the processor for its features.
func (g *gen) cpu() {
	g.Function("cpuid")
	g.Attributes(attr.NOSPLIT)
	g.SignatureExpr("func(leaf, sub uint32) (a, b, c, d uint32)")
	g.Doc("cpuid is the instruction CPUID: what leaf and sub-leaf answer in EAX to EDX.")
	g.Load(g.Param("leaf"), reg.EAX)
	g.Load(g.Param("sub"), reg.ECX)
	g.CPUID()
	for i, r := range []reg.Register{reg.EAX, reg.EBX, reg.ECX, reg.EDX} {
		g.Store(r, g.ReturnIndex(i))
	}
	g.RET()

	g.Function("xgetbv")
	g.Attributes(attr.NOSPLIT)
	g.SignatureExpr("func() uint32")
	g.Doc("xgetbv is the low half of XCR0: the register states that the kernel saves.")
	g.XORL(operand.Op(reg.ECX), reg.ECX)
	g.XGETBV()
	g.Store(reg.EAX, g.ReturnIndex(0))
	g.RET()
}
