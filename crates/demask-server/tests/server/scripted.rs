//! Servers to test: over the embedded model, and over a stand-in that says what it is told, slowly if it should.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use demask::diffusion::{Curve, Denoising};
use demask::model::{Output, Plan, Prediction};
use demask::text::Specials;
use demask::{Canvas, Device, Error, MaskPredictor, ModelFile, ModelSpec, Request};
use demask_compute::RowStatistics;
use demask_server::{Options, Runner, Server};
use tokio::sync::oneshot;

/// A server on a port of its own. It is shut down when dropped.
pub(crate) struct Running {
    pub(crate) at: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(runner: Arc<dyn Runner>, change: impl FnOnce(&mut Options)) -> Running {
        let mut options = Options::default();
        options.address.set_port(0);
        change(&mut options);
        let (tell, told) = std::sync::mpsc::channel();
        let (stop, asked) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let server = Server::bind(options, runner).await.unwrap();
                tell.send(server.local_addr()).unwrap();
                server.run(async { drop(asked.await) }).await;
            });
        });
        Running { at: told.recv().unwrap(), stop: Some(stop), thread: Some(thread) }
    }

    /// Asks for a graceful end.
    pub(crate) fn ask_to_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits for it.
    pub(crate) fn wait(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ask_to_stop();
        if !std::thread::panicking() {
            self.wait();
        }
    }
}

pub(crate) fn file() -> ModelFile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/demask-tiny-q8_0.gguf");
    ModelFile::open(path).unwrap()
}

/// The embedded model.
pub(crate) fn embedded() -> Arc<demask::Model> {
    Arc::new(file().load(&Device::cpu(Some(1)).unwrap(), &mut |_, _| {}).unwrap())
}

/// A server over the embedded model.
pub(crate) fn real() -> Running {
    Running::start(embedded(), |_| {})
}

type Says = dyn Fn(&ModelFile, &Canvas) -> Vec<u32> + Send + Sync;

/// Says what it is told: position by position from the left, then end tokens.
pub(crate) struct Script {
    file: ModelFile,
    says: Box<Says>,
    /// Time of a step.
    delay: Duration,
    /// The step whose logits are not numbers.
    broken: Option<usize>,
    /// The step that panics, in one run.
    panics: Arc<Mutex<Option<usize>>>,
    /// What its passes cost.
    curve: Curve,
    /// How often that was asked.
    pub(crate) measured: Arc<AtomicUsize>,
    /// Steps run, over all runs.
    pub(crate) steps: Arc<AtomicUsize>,
    /// How many answers were begun.
    pub(crate) begun: Arc<AtomicUsize>,
}

impl Script {
    /// Says `text`.
    pub(crate) fn text(text: &str) -> Script {
        let text = text.to_owned();
        Script::of(move |file, _| file.tokenizer().encode(&text, Specials::Text))
    }

    /// Says its prompt again.
    pub(crate) fn echo() -> Script {
        Script::of(|file, canvas| {
            let text = |token: &u32| !file.tokenizer().is_special(*token);
            canvas.tokens()[..canvas.asked_range().start].iter().copied().filter(text).collect()
        })
    }

    /// Says tokens.
    pub(crate) fn of(says: impl Fn(&ModelFile, &Canvas) -> Vec<u32> + Send + Sync + 'static) -> Script {
        Script {
            file: file(),
            says: Box::new(says),
            delay: Duration::ZERO,
            broken: None,
            panics: Arc::default(),
            curve: Curve::new([(32, 0.1), (512, 0.1)]).unwrap(),
            measured: Arc::default(),
            steps: Arc::default(),
            begun: Arc::default(),
        }
    }

    pub(crate) fn slow(self, delay: Duration) -> Script {
        Script { delay, ..self }
    }

    pub(crate) fn broken_at(self, step: usize) -> Script {
        Script { broken: Some(step), ..self }
    }

    /// The first run that comes to `step` panics there.
    pub(crate) fn panics_at(self, step: usize) -> Script {
        Script { panics: Arc::new(Mutex::new(Some(step))), ..self }
    }

    pub(crate) fn costs(self, points: [(usize, f64); 2]) -> Script {
        Script { curve: Curve::new(points).unwrap(), ..self }
    }

    pub(crate) fn serve(self) -> Running {
        Running::start(Arc::new(self), |_| {})
    }
}

impl Runner for Script {
    fn file(&self) -> &ModelFile {
        &self.file
    }

    fn start(&self, canvas: Canvas, request: &Request) -> Result<(Denoising, Box<dyn MaskPredictor>), Error> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let settings = self.file.settings(&canvas, request)?;
        let predictor = Predictor {
            spec: self.file.spec().clone(),
            says: (self.says)(&self.file, &canvas),
            from: canvas.asked_range().start,
            end: self.file.tokenizer().ids().eos.unwrap(),
            delay: self.delay,
            broken: self.broken,
            panics: Arc::clone(&self.panics),
            step: 0,
            steps: Arc::clone(&self.steps),
        };
        Ok((Denoising::new(canvas, settings), Box::new(predictor)))
    }

    fn curve(&self, _: usize) -> Result<Curve, Error> {
        self.measured.fetch_add(1, Ordering::SeqCst);
        Ok(self.curve.clone())
    }
}

struct Predictor {
    spec: ModelSpec,
    says: Vec<u32>,
    from: usize,
    end: u32,
    delay: Duration,
    broken: Option<usize>,
    panics: Arc<Mutex<Option<usize>>>,
    step: usize,
    steps: Arc<AtomicUsize>,
}

impl MaskPredictor for Predictor {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn predict(&mut self, _: &[u32], plan: &Plan<'_>, out: &mut Prediction) -> Result<(), Error> {
        std::thread::sleep(self.delay);
        let broken = self.broken == Some(self.step);
        let panics = self.panics.lock().unwrap().take_if(|step| *step == self.step);
        assert!(panics.is_none(), "a planted panic");
        self.step += 1;
        self.steps.fetch_add(1, Ordering::SeqCst);
        out.rows = plan.wanted.to_vec();
        out.statistics.clear();
        out.logits.clear();
        for &row in plan.wanted {
            // With `full_logits` the rows of the prompt are wanted too.
            let at = (row as usize).saturating_sub(self.from);
            let token = self.says.get(at).copied().unwrap_or(self.end);
            let probability = 0.99 / (1.0 + at as f64);
            match plan.output {
                Output::Statistics { .. } => out.statistics.push(RowStatistics {
                    token,
                    probability,
                    runner_up: 0.0,
                    entropy: at as f64,
                    finite: !broken,
                }),
                Output::Samples(_) | Output::Logits => {
                    let mut logits = vec![if broken { f32::NAN } else { 0.0 }; self.spec.vocab];
                    logits[token as usize] = 30.0;
                    out.logits.extend(logits);
                }
            }
        }
        Ok(())
    }
}
