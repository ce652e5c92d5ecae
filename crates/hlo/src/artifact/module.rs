//! The operations of a portable artifact.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_tensor::{Result, bail, ensure, err};

use super::bytes::Bytes;
use super::properties::names;
use super::tables::{Attr, Tables, Type};

/// How deep regions of operations nest.
const DEPTH_MAX: usize = 48;
/// Section of operations.
const OPERATIONS: u8 = 4;

/// A StableHLO module, read from a portable artifact: MLIR bytecode of the VHLO dialect.
pub struct Module {
    pub(super) functions: BTreeMap<String, Function>,
}

pub(super) struct Function {
    pub(super) body: Region,
    /// Values of the function and its regions.
    pub(super) num_values: usize,
}

/// A region of one block.
pub(super) struct Region {
    pub(super) arguments: Vec<(u32, Arc<Type>)>,
    pub(super) operations: Vec<Operation>,
}

pub(super) struct Operation {
    /// Without dialect and version: `add`.
    pub(super) name: String,
    pub(super) attrs: Arc<Attr>,
    pub(super) operands: Vec<u32>,
    pub(super) results: Vec<(u32, Arc<Type>)>,
    pub(super) regions: Vec<Region>,
}

impl Module {
    /// Reads a portable artifact.
    pub fn read(bytes: &[u8]) -> Result<Module> {
        let (tables, operations) = Tables::read(bytes)?;
        let mut reader = Reader { tables: &tables, scopes: vec![Scope::default()] };
        let region = reader.block(&mut { operations }, 0)?;
        let [module] = &region.operations[..] else {
            bail!(InvalidArgument, "the file holds {} modules", region.operations.len());
        };
        ensure!(module.name == "module", InvalidArgument, "the file holds a {}", module.name);
        let mut functions = BTreeMap::new();
        let region = region.operations.into_iter().flat_map(|m| m.regions);
        for operation in region.flat_map(|r| r.operations) {
            if operation.name != "func" {
                continue;
            }
            let Some(Attr::Text(name)) = operation.attr("sym_name") else {
                bail!(InvalidArgument, "a function of the module has no name");
            };
            let name = name.clone();
            let num_values = operation.results.len();
            let body = operation.regions.into_iter().next();
            let body = body.ok_or_else(|| err!(InvalidArgument, "{name} has no body"))?;
            functions.insert(name, Function { num_values: count_values(&body) + num_values, body });
        }
        let has_main = functions.contains_key("main");
        ensure!(has_main, InvalidArgument, "the module has no function 'main'");
        Ok(Module { functions })
    }
}

impl Operation {
    /// An attribute.
    pub(super) fn attr(&self, name: &str) -> Option<&Attr> {
        let Attr::Dictionary(all) = &*self.attrs else { return None };
        all.iter().find(|(n, _)| n == name).map(|(_, attr)| &**attr)
    }
}

/// Attributes of an operation's own and others that it has.
fn merged(own: Vec<(String, Arc<Attr>)>, others: &Attr) -> Attr {
    let others = match others {
        Attr::Dictionary(others) => others.clone(),
        _ => Vec::new(),
    };
    Attr::Dictionary(own.into_iter().chain(others).collect())
}

/// One more than the greatest number of a value.
fn count_values(region: &Region) -> usize {
    let mut count = region.arguments.iter().map(|(v, _)| *v as usize + 1).max().unwrap_or(0);
    for operation in &region.operations {
        let results = operation.results.iter().map(|(v, _)| *v as usize + 1).max();
        let inner = operation.regions.iter().map(count_values).max();
        count = count.max(results.unwrap_or(0)).max(inner.unwrap_or(0));
    }
    count
}

/// The values of a region that reads none from outside, and of the regions in it. The file numbers them
/// from 0; what follows a region uses its numbers again.
#[derive(Default)]
struct Scope {
    /// Added to the file's numbers, so that those of a function differ.
    base: usize,
    /// For each region, its first number, the next one, and the end.
    regions: Vec<(usize, usize, usize)>,
}

impl Scope {
    fn push(&mut self, num_values: usize) {
        let start = self.regions.last().map_or(0, |(.., end)| *end);
        self.regions.push((start, start, start + num_values));
    }

    /// The end of the numbers that are in use.
    fn end(&self) -> usize {
        self.base + self.regions.last().map_or(0, |(.., end)| *end)
    }

    fn define(&mut self) -> Result<u32> {
        let base = self.base;
        let (_, next, end) =
            self.regions.last_mut().ok_or_else(|| err!(InvalidArgument, "a value of nothing"))?;
        ensure!(next < end, InvalidArgument, "a region of the module has too many values");
        *next += 1;
        u32::try_from(base + *next - 1).map_err(|_| err!(InvalidArgument, "too many values"))
    }

    /// The number of a value that the file refers to, if there is one.
    fn find(&self, value: usize) -> Option<u32> {
        let is_defined =
            self.regions.iter().any(|&(start, next, _)| (start..next).contains(&value));
        u32::try_from(self.base + value).ok().filter(|_| is_defined)
    }
}

struct Reader<'a> {
    tables: &'a Tables<'a>,
    scopes: Vec<Scope>,
}

impl Reader<'_> {
    fn scope(&mut self) -> Result<&mut Scope> {
        self.scopes.last_mut().ok_or_else(|| err!(Internal, "no scope of values"))
    }

    fn region(&mut self, bytes: &mut Bytes<'_>, depth: usize) -> Result<Region> {
        ensure!(depth < DEPTH_MAX, InvalidArgument, "the regions of the module nest too deep");
        match bytes.number()? {
            0 => return Ok(Region { arguments: Vec::new(), operations: Vec::new() }),
            1 => {}
            n => bail!(Unimplemented, "the module has a region of {n} blocks"),
        }
        let num_values = bytes.count()?;
        self.scope()?.push(num_values);
        let region = self.block(bytes, depth)?;
        self.scope()?.regions.pop();
        Ok(region)
    }

    fn block(&mut self, bytes: &mut Bytes<'_>, depth: usize) -> Result<Region> {
        let (count, has_arguments) = bytes.flagged()?;
        ensure!(count <= bytes.len(), InvalidArgument, "a block has {count} operations");
        let mut arguments = Vec::new();
        if has_arguments {
            for _ in 0..bytes.count()? {
                let ty = match self.tables.version {
                    0..=3 => {
                        let ty = bytes.index()?;
                        bytes.number()?;
                        ty
                    }
                    _ => {
                        let (ty, has_location) = bytes.flagged()?;
                        if has_location {
                            bytes.number()?;
                        }
                        ty
                    }
                };
                let ty = self.tables.ty(ty)?;
                arguments.push((self.scope()?.define()?, ty));
            }
            if self.tables.version >= 3 && bytes.byte()? != 0 {
                skip_use_orders(bytes, arguments.len())?;
            }
        }
        let mut operations = Vec::new();
        for _ in 0..count {
            operations.push(self.operation(bytes, depth)?);
        }
        Ok(Region { arguments, operations })
    }

    fn operation(&mut self, bytes: &mut Bytes<'_>, depth: usize) -> Result<Operation> {
        let name = self.tables.operations.get(bytes.index()?);
        let (dialect, full_name) =
            *name.ok_or_else(|| err!(InvalidArgument, "an operation has no name"))?;
        let name = match dialect {
            "vhlo" => full_name.rsplit_once("_v").map_or(full_name, |(name, _)| name).to_owned(),
            "builtin" => full_name.to_owned(),
            _ => bail!(Unimplemented, "the module uses {dialect}.{full_name}"),
        };
        let mask = bytes.byte()?;
        // The location.
        bytes.number()?;
        let mut attrs = match mask & 1 {
            0 => Arc::new(Attr::Other),
            _ => self.tables.attr(bytes.index()?)?,
        };
        if mask & 0x40 != 0 {
            let index = bytes.index()?;
            if dialect == "vhlo" {
                let names = names(full_name);
                let names = names.ok_or_else(|| {
                    err!(Unimplemented, "the module uses {full_name}, which is not supported")
                })?;
                let own = self.tables.properties(index, names)?;
                attrs = Arc::new(merged(own, &attrs));
            }
        }
        let mut types = Vec::new();
        if mask & 2 != 0 {
            for _ in 0..bytes.count()? {
                types.push(self.tables.ty(bytes.index()?)?);
            }
        }
        let mut operands = Vec::new();
        if mask & 4 != 0 {
            for _ in 0..bytes.count()? {
                let value = bytes.index()?;
                let value = self.scope()?.find(value);
                operands.push(value.ok_or_else(|| {
                    err!(InvalidArgument, "{name} reads a value before it is made")
                })?);
            }
        }
        ensure!(mask & 8 == 0, Unimplemented, "the module has branches between blocks");
        if mask & 0x20 != 0 {
            skip_use_orders(bytes, types.len())?;
        }
        let (num_regions, is_isolated) = match mask & 0x10 {
            0 => (0, false),
            _ => bytes.flagged()?,
        };
        let mut results = Vec::with_capacity(types.len());
        for ty in types {
            results.push((self.scope()?.define()?, ty));
        }
        let regions = self.regions(bytes, num_regions, is_isolated, depth + 1)?;
        Ok(Operation { name, attrs, operands, results, regions })
    }

    fn regions(
        &mut self,
        bytes: &mut Bytes<'_>,
        count: usize,
        is_isolated: bool,
        depth: usize,
    ) -> Result<Vec<Region>> {
        ensure!(count <= bytes.len(), InvalidArgument, "an operation has {count} regions");
        let mut own = None;
        if is_isolated && count > 0 {
            let base = self.scope()?.end();
            self.scopes.push(Scope { base, regions: Vec::new() });
            if self.tables.version >= 2 {
                let (id, section) = bytes.section()?;
                ensure!(id == OPERATIONS, InvalidArgument, "a region is a section of kind {id}");
                own = Some(section);
            }
        }
        let bytes = own.as_mut().unwrap_or(bytes);
        let regions = (0..count).map(|_| self.region(bytes, depth)).collect::<Result<_>>()?;
        if is_isolated && count > 0 {
            self.scopes.pop();
        }
        Ok(regions)
    }
}

/// Skips the orders of uses of `count` values, which matter to compilers alone.
fn skip_use_orders(bytes: &mut Bytes<'_>, count: usize) -> Result<()> {
    let listed = if count > 1 { bytes.count()? } else { 1 };
    for _ in 0..listed {
        if count > 1 {
            bytes.number()?;
        }
        let (uses, _) = bytes.flagged()?;
        for _ in 0..uses {
            bytes.number()?;
        }
    }
    Ok(())
}
